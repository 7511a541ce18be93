"""Distillation: fine-tune a small cross-encoder judge on labels from people or a larger judge."""
