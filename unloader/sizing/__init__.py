"""How much machine a night needs: pure arithmetic on what was measured, each step shown."""
