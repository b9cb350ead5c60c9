"""Sequences: numbers that are given out once.

    draw            1 write unit     may leave gaps after a lost answer
    draw_block      1 write unit for any block; what is not used of it is a gap
    draw_expected   1 read, 1 write  a lost answer leaves a gap only if another drew meanwhile
    append          1 read, 1 write  no gaps: the number is the place of an app's item among others

No number is ever given out twice, whatever fails. Draws of one sequence that follow each other (the
first acknowledged before the second begins) give growing numbers. Draws that overlap have no
promised order, and numbers from blocks grow only within one lease.
"""
