"""Compiled code: DeepSpeed's operators and the fast forward of the speed ladder."""
