package sqleffect

import (
	"fmt"
	"slices"
	"strings"
)

// maxStatement bounds a statement's text; longer is a program, which belongs
// into the database.
const maxStatement = 64 << 10

// begins are the words that a statement may begin with: those that read or
// change rows within the transaction around them. Others commit by themselves
// (DDL in MySQL), end the transaction, or reach beyond the database (ATTACH).
func begins() []string {
	return []string{"insert", "update", "delete", "merge", "replace", "select", "with", "values", "call"}
}

// statement tells what is wrong with a statement's text. It does not parse SQL,
// of which each database has its own; what could end a statement is refused
// wherever it stands.
func statement(text string) error {
	text = strings.TrimRight(text, " \t\r\n;")
	switch {
	case text == "":
		return fmt.Errorf("sql needs exec or query: the statement")
	case len(text) > maxStatement:
		return fmt.Errorf("the statement is longer than %d bytes", maxStatement)
	case strings.ContainsRune(text, ';'):
		return fmt.Errorf("one statement a command, and ; would end it: give a text that holds one in args")
	case strings.ContainsRune(text, 0):
		return fmt.Errorf("the statement holds a zero byte")
	case !slices.Contains(begins(), firstWord(text)):
		return fmt.Errorf("a statement begins with one of %s: what else there is commits by itself, or is for people", strings.Join(begins(), ", "))
	}
	return nil
}

// firstWord of a statement in lower case; a parenthesis may stand before it.
func firstWord(text string) string {
	text = strings.TrimLeft(text, " \t\r\n(")
	end := strings.IndexFunc(text, func(c rune) bool { return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') })
	if end >= 0 {
		text = text[:end]
	}
	return strings.ToLower(text)
}
