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
