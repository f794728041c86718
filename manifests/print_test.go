package manifests

import (
	"bytes"
	"strings"
	"testing"
)

func TestPrintSortsMarksWarningsAndCounts(t *testing.T) {
	a := &File{Name: "a.yaml", Source: []byte("one\n\tt\u65e5x\rthree")}
	b := &File{Name: "b.yaml", Source: []byte(strings.Repeat("x", 300) + "Y" + strings.Repeat("z", 300))}
	ps := Problems{
		{File: b, Pos: Pos{1, 301}, Message: "far right"},
		{File: a, Pos: Pos{3, 6}, Message: "behind the end"},
		{File: a, Pos: Pos{9, 1}, Message: "no such line"},
		{File: a, Pos: Pos{2, 4}, Warning: true, Message: "after a wide one\x1b[31m"},
		{File: a, Pos: Pos{2, 2}, Message: "after a tab"},
		{Message: "no file"},
	}
	var out bytes.Buffer
	ps.Print(&out, false)
	golden(t, "testdata/print.golden", out.Bytes())
	out.Reset()
	ps[2:4].Print(&out, true)
	golden(t, "testdata/print_color.golden", out.Bytes())
	if ps[0].Message != "far right" {
		t.Error("printing changed the order of the problems")
	}
}

func TestCount(t *testing.T) {
	e, w := Problem{}, Problem{Warning: true}
	for want, ps := range map[string]Problems{
		"no problems": nil, "1 error": {e}, "2 errors": {e, e}, "1 warning": {w}, "2 warnings": {w, w}, "2 errors, 1 warning": {e, w, e},
	} {
		if got := ps.Count(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if (Problems{w}).Failed() || !(Problems{w, e}).Failed() {
		t.Error("only errors fail")
	}
}

func TestManyProblemsAreLimitedErrorsFirst(t *testing.T) {
	one, other := &File{Name: "one"}, &File{Name: "other"}
	ps := Problems{{File: other, Message: "alone", Warning: true}}
	for i := range 3 * maxProblems {
		ps = append(ps, Problem{File: one, Pos: Pos{i, 1}, Warning: i%3 != 0, Message: "said"})
	}
	got := ps.Limited()
	errors, said := 0, 0
	for _, p := range got {
		if !p.Warning {
			errors++
		}
		if p.Message == "too many problems: the rest is not shown" {
			said++
		}
	}
	if len(got) != maxProblems+2 || errors != maxProblems || said != 1 || got[0].Message != "alone" {
		t.Errorf("%d problems, %d errors, said %d times", len(got), errors, said)
	}
	for i := range len(got) - 2 {
		if got[i+1].File == one && got[i].File == one && got[i].Pos.Line >= got[i+1].Pos.Line {
			t.Fatal("the order is another")
		}
	}
	if few := (Problems{{File: one}}).Limited(); len(few) != 1 {
		t.Errorf("%v", few)
	}
}
