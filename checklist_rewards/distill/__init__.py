"""From labels to a judge: a small cross-encoder fine-tuned on what people, or a larger judge, said."""
