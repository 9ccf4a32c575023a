"""Ceilings: what disks, source, encoder and codecs of one machine gave when they were measured."""
