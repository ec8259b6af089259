"""Environment packs: environments whose packages disagree with ours, such as Meta-World, which needs MuJoCo below 4.

A pack is a folder of pinned packages for the interpreter that runs Dressage. Its simulator runs in a player process of its
own, which imports these packages instead of ours and is spoken to in the same way as any other player. The cards are part of
this package, so that a session can be planned without the pack.
"""
