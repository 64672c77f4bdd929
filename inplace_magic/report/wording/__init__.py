"""Every sentence that a person reads, by its kind: one table a language, with the same kinds in each."""

from . import en, en_cli, zh, zh_cli

CATALOGUES = {"en": en.SENTENCES | en_cli.SENTENCES, "zh": zh.SENTENCES | zh_cli.SENTENCES}
