"""The pure stages of a turn: values in, values out, no network, no clock, no chance."""
