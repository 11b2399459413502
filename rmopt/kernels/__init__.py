"""Compiled loops: arrays in, arrays out. Nothing here knows the rest of rmopt."""
