"""The llm-agent service: every conversation with a language model, and the template author that needs none."""
