"""RUN and CAPTURE: the only room that starts foreign code."""
