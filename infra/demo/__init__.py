"""The main job on real input: a git repository counted, and checked against git itself."""
