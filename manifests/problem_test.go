package manifests

import "testing"

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
