"""What shows the ideas: pictures, dials, checks of a learner's own functions, bets, questions, progress.

The only room that may import matplotlib, ipywidgets and IPython. Everything here also works without a front end: it
prints, or takes the answer as an argument.
"""
