"""Transforms: what one output does to rows between reading and writing, masks among it.

model.TransformOptions      the steps, as plain data; model.MaskingKey: where a key is
transformer.check           from a schema to the columns that come out, or one error
transformer.Transformer     applies the steps to batches
"""
