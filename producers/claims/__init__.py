"""Unique claims: a value, or a combination of values, that at most one owner has.

    take      1 write unit     by its primary key; with items of the app's own, in one transaction
    change    4 write units    the old value is free and the new one taken, or nothing is changed
    release   1 write unit     it is free again; a take from before that claims nothing any more

DynamoDB keeps nothing unique but primary keys. So what is to be unique becomes the primary key of
an item of its own, the claim, and whatever belongs to it is written in the same transaction.
"""
