package spec

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"edda/manifests"
)

// table has a field of every type.
func table() *Fields {
	item := Field{Name: "list", Type: Text, Literal: true}
	return &Fields{Name: "thing", Fields: []Field{
		{Name: "needed", Needed: "what it is for"},
		{Name: "text", Type: Text, Trusted: "who pays"},
		{Name: "word", Type: Text, Literal: true, Words: []string{"one", "two"}},
		{Name: "bool", Type: Bool, Literal: true},
		{Name: "whole", Type: Whole, Literal: true, Min: 2, Max: 5, Says: "a few"},
		{Name: "map", Type: Map},
		{Name: "list", Type: List, Items: &item},
		{Name: "part", Type: Map, Literal: true, Of: &Fields{Name: "a part", Path: "part.", Fields: []Field{{Name: "size", Type: Text}}}},
		{Name: "read", Read: Reads(func(v any) (int, error) {
			n, is := v.(int)
			if !is {
				return 0, errors.New("read is no number")
			}
			return n, nil
		})},
	}, Check: func(c *Checker, m *manifests.Value) {
		if m.Field("bool") != nil && c.Asks {
			c.Warnf(m.Pos, "a check has bool")
		}
	}}
}

func TestChecker(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"text: a, word: two, bool: false, whole: 5, map: {a: =id}, list: [a], part: {size: =id}, read: 7", ""},
		{"text: '=id + secret.A', map: =payload, list: =payload, read: =id", ""},
		{"text: 'a ${id}', read: 'a ${payload.b}'", ""},
		{"txt: a", "e.yaml:2:19: error: thing knows no txt; did you mean text?"},
		{"zzzzzz: a", "thing knows no zzzzzz; it knows needed, text, word,"},
		{"text: ''", "e.yaml:2:25: error: text is a text, and not empty"},
		{"text: [a]", "text is a text"},
		{"text: 'a ${payload.b}'", "text may not come from the payload, which would choose who pays"},
		{"word: three", "word is written out as one of one, two"},
		{"word: =id", "word is written out"},
		{"bool: 1", "bool is true or false"},
		{"bool: =payload.b", "bool is true or false"},
		{"whole: 1", "whole is a few"},
		{"whole: 6", "whole is a few"},
		{"whole: 2.5", "whole is a few"},
		{"map: [a]", "map is a map of names and values, or an expression that gives one"},
		{"map: 'a ${id}'", "map is a map"},
		{"list: a", "list is a list"},
		{"list: [a, =id]", "e.yaml:2:29: error: list is a text"},
		{"part: =payload", "part is a map of size"},
		{"part: {siz: a}", "a part knows no siz; did you mean size?"},
		{"part: {size: 7}", "part.size is a text"},
		{"read: a", "e.yaml:2:25: error: read is no number"},
	} {
		f, problems := manifests.Parse("e.yaml", []byte("effect: a\nhttp: {needed: 1, "+tt.text+"}\n"))
		if problems.Failed() {
			t.Fatalf("%s: %v", tt.text, problems)
		}
		c := Checker{File: f}
		c.Map(table(), f.Effects[0].Config)
		if got := fmt.Sprint(c.Problems); c.Problems.Failed() != (tt.want != "") || len(c.Problems) > 1 || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s, want %q", tt.text, got, tt.want)
		}
	}
}

func TestCheckerOfTheWholeMap(t *testing.T) {
	f, _ := manifests.Parse("e.yaml", []byte("effect: a\nhttp: {bool: true}\n"))
	c := Checker{File: f, Asks: true}
	c.Map(table(), f.Effects[0].Config)
	if got, want := fmt.Sprint(c.Problems), "[e.yaml:2:7: error: thing needs needed: what it is for e.yaml:2:7: warning: a check has bool]"; got != want {
		t.Errorf("problems %s, want %s", got, want)
	}
}
