"""Networks that are ready made."""

from . import model_store, vision
from .vision import get_model
