"""Every sentence that a person reads, by its kind: one table a language, with the same kinds in each."""

from . import en, zh

CATALOGUES = {"en": en.SENTENCES, "zh": zh.SENTENCES}
