"""The charts of a page, as specifications in Vega-Lite and as SVG."""
