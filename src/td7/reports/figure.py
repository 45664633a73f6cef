"""A figure of matplotlib that a notebook shows by itself, without pyplot."""

from io import BytesIO

from matplotlib.figure import Figure


class ShownFigure(Figure):
    """A figure that a cell of a notebook may end with."""

    def _repr_png_(self) -> bytes:
        picture = BytesIO()
        self.savefig(picture, format="png")
        return picture.getvalue()
