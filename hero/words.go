package hero

import (
	"fmt"
	"slices"
	"strings"
)

// word finds the word that s spells, however it is written: in snake, Pascal or
// camel case, with or without quotes. The empty text is no word.
func word[T ~string](what, s string, known ...T) (T, error) {
	if slices.Contains(known, T(s)) && s != "" {
		return T(s), nil // as we write it
	}
	folded := fold(s)
	for _, w := range known {
		if folded != "" && folded == fold(string(w)) {
			return w, nil
		}
	}
	names := make([]string, len(known))
	for i, w := range known {
		names[i] = string(w)
	}
	return "", fmt.Errorf("%q is no %s: want %s", shown(s), what, strings.Join(names, ", "))
}

// fold drops what the spellings of a word differ in.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '_', '-', ' ', '\t', '\n', '\r', '"', '\'':
			return -1
		}
		return r
	}, strings.ToLower(s))
}

// decode is how the words read themselves from JSON: liberally, and nothing from
// the empty text.
func decode[T ~string](to *T, text []byte, parse func(string) (T, error)) error {
	if len(text) == 0 {
		*to = ""
		return nil
	}
	w, err := parse(string(text))
	if err == nil {
		*to = w
	}
	return err
}
