"""Transforms: what one output does to rows between reading and writing, masks among it.

model.TransformOptions                   the steps, as plain data; model.MaskingKey: where a key is
masking_keys.key_place, with_proof       from an option to a MaskingKey, before a run
masking_keys.masking_keys                the keys themselves, in the process that needs them
transformer.check                        from a schema to the columns that come out, or one error
transformer.Transformer                  applies the steps to batches
"""
