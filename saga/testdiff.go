package saga

import (
	"slices"
	"strings"

	"edda"
	"edda/manifests"
)

// diffLine is a line of a failure. Sign is '-' for what a test expects, '+' for what it got, and a
// blank for what is both.
type diffLine struct {
	sign byte
	text string
}

// diffContext is how many matching lines are shown before and after those that differ.
const diffContext = 3

// showDiff formats the lines of a failure under a title; empty if no line differs.
func showDiff(title string, lines []diffLine) string {
	differs := func(l diffLine) bool { return l.sign != ' ' }
	if !slices.ContainsFunc(lines, differs) {
		return ""
	}
	var b strings.Builder
	b.WriteString(title + ": - expected, + got\n")
	hidden := false
	for i, l := range lines {
		around := lines[max(0, i-diffContext):min(len(lines), i+diffContext+1)]
		switch {
		case slices.ContainsFunc(around, differs):
			b.WriteString("  " + string(l.sign) + " " + l.text + "\n")
			hidden = false
		case !hidden:
			b.WriteString("    …\n")
			hidden = true
		}
	}
	return b.String()
}

// compareOutputs compares the outputs of a step with the ordered list that it expects.
func compareOutputs(s *manifests.TestStep, outs []edda.Output) []diffLine {
	if !s.HasExpect {
		return nil
	}
	var lines []diffLine
	for _, p := range align(s.Expect, namedOutputs(s.Expect, outs)) {
		switch {
		case p.got == nil:
			lines = append(lines, diffLine{'-', expectedText(*p.want)})
		case p.want == nil:
			lines = append(lines, diffLine{'+', manifests.Flow(outputFields(*p.got))})
		case matches(*p.want, *p.got):
			lines = append(lines, diffLine{' ', expectedText(*p.want)})
		default:
			lines = append(lines, diffLine{'-', expectedText(*p.want)}, diffLine{'+', manifests.Flow(asExpected(*p.want, *p.got))})
		}
	}
	return lines
}

// updatedExpect is the list that expects what came. An entry that matches stays as it is written, and
// one that differs keeps the fields that it names.
func updatedExpect(s *manifests.TestStep, outs []edda.Output) []manifests.ExpectEntry {
	out := []manifests.ExpectEntry{}
	old := 0
	for _, p := range align(s.Expect, namedOutputs(s.Expect, outs)) {
		switch {
		case p.want == nil:
			out = append(out, manifests.ExpectEntry{Old: -1, Text: manifests.Flow(newExpect(*p.got))})
			continue
		case p.got == nil:
		case matches(*p.want, *p.got):
			out = append(out, manifests.ExpectEntry{Old: old})
		default:
			out = append(out, manifests.ExpectEntry{Old: old, Text: manifests.Flow(asExpected(*p.want, *p.got))})
		}
		old++
	}
	return out
}

// newExpect has the fields that a new entry compares. The due of an effect that names none is the
// default.
func newExpect(o edda.Output) manifests.Ordered {
	return slices.DeleteFunc(outputFields(o), func(f manifests.Entry) bool { return f.Key == "due" && f.Value == durationText(defaultDue) })
}

// pair is an expected output beside the one that it means; one of them may be nil.
type pair struct {
	want *manifests.Expect
	got  *edda.Output
}

// maxAligned bounds the comparisons of an alignment. Longer lists are compared place by place: an
// advance may have many thousand outputs.
const maxAligned = 1 << 20

// align pairs the expected outputs with those that came, both in their order. It prefers pairs that
// match to pairs of the same word and name.
func align(want []manifests.Expect, got []edda.Output) []pair {
	var out []pair
	for len(want) > 0 && len(got) > 0 && matches(want[0], got[0]) {
		out = append(out, pair{&want[0], &got[0]})
		want, got = want[1:], got[1:]
	}
	if len(want)*len(got) > maxAligned {
		for i := range max(len(want), len(got)) {
			var p pair
			if i < len(want) {
				p.want = &want[i]
			}
			if i < len(got) {
				p.got = &got[i]
			}
			out = append(out, p.parts()...)
		}
		return out
	}
	// best[i][j] is the most that pairs of want[i:] and got[j:] are worth.
	best := make([][]int, len(want)+1)
	for i := range best {
		best[i] = make([]int, len(got)+1)
	}
	for i := len(want) - 1; i >= 0; i-- {
		for j := len(got) - 1; j >= 0; j-- {
			best[i][j] = max(best[i+1][j], best[i][j+1], likeness(want[i], got[j])+best[i+1][j+1])
		}
	}
	i, j := 0, 0
	for i < len(want) && j < len(got) {
		switch l := likeness(want[i], got[j]); {
		case l > 0 && best[i][j] == l+best[i+1][j+1]:
			out = append(out, pair{&want[i], &got[j]})
			i, j = i+1, j+1
		case best[i][j] == best[i+1][j]:
			out = append(out, pair{want: &want[i]})
			i++
		default:
			out = append(out, pair{got: &got[j]})
			j++
		}
	}
	for ; i < len(want); i++ {
		out = append(out, pair{want: &want[i]})
	}
	for ; j < len(got); j++ {
		out = append(out, pair{got: &got[j]})
	}
	return out
}

// parts separates two outputs that have nothing in common.
func (p pair) parts() []pair {
	if p.want == nil || p.got == nil || likeness(*p.want, *p.got) > 0 {
		return []pair{p}
	}
	return []pair{{want: p.want}, {got: p.got}}
}

// likeness is what a pair is worth: one match is worth more than all pairs of a word and a name.
func likeness(e manifests.Expect, o edda.Output) int {
	switch {
	case e.Word != o.Word:
		return 0
	case matches(e, o):
		return maxAligned
	case nameMatches(e.Fields[e.Word], o) && (e.Fields["step"] == nil || text(e.Fields["step"]) == o.Step):
		return 2
	case nameMatches(e.Fields[e.Word], o):
		return 1
	}
	return 0
}

func expectedText(e manifests.Expect) string {
	fields := make(manifests.Ordered, 0, len(e.Order))
	for i, name := range e.Order {
		fields = append(fields, manifests.Entry{Key: name, Value: e.Values[i]})
	}
	return manifests.Flow(fields)
}

// asExpected has the fields of an output that a test names, in the test's order. What matches is
// written as the test writes it, so that only what differs looks different.
func asExpected(e manifests.Expect, o edda.Output) manifests.Ordered {
	var fields manifests.Ordered
	for i, name := range e.Order {
		if fieldMatches(name, e.Fields[name], o) {
			fields = append(fields, manifests.Entry{Key: name, Value: e.Values[i]})
		} else if got := outputField(name, o); got != nil {
			fields = append(fields, manifests.Entry{Key: name, Value: projected(e.Values[i], got)})
		}
	}
	return fields
}

// outputField is the value of an output under the name that a test has for it; nil if there is none.
func outputField(name string, o edda.Output) any {
	switch name {
	case o.Word:
		return o.Name
	case "step":
		return orNil(o.Step)
	case "id":
		return orNil(o.ID)
	case "with", "result":
		return decodeOrNil(o.With)
	case "attempt":
		return o.Attempt
	case "version":
		return o.Version
	}
	for _, f := range outputFields(o) {
		if f.Key == name {
			return f.Value
		}
	}
	return nil
}

// outputFields are the fields of an output as a test names them, without those that say nothing.
func outputFields(o edda.Output) manifests.Ordered {
	fields := manifests.Ordered{{Key: o.Word, Value: o.Name}}
	if o.Word == "guarded" && o.Name == "true" {
		fields[0].Value = true
	}
	add := func(name, v string) {
		if v != "" {
			fields = append(fields, manifests.Entry{Key: name, Value: v})
		}
	}
	if o.Step != o.Name {
		add("step", o.Step)
	}
	add("to", o.To)
	add("key", o.Key)
	if len(o.With) > 0 {
		name := "with"
		if o.Word == "end" {
			name = "result"
		}
		fields = append(fields, manifests.Entry{Key: name, Value: decodeOrNil(o.With)})
	}
	add("due", o.Due)
	add("for", o.For)
	add("undoes", o.Undoes)
	if o.Attempt > 1 {
		fields = append(fields, manifests.Entry{Key: "attempt", Value: o.Attempt})
	}
	if o.Version > 0 {
		fields = append(fields, manifests.Entry{Key: "version", Value: o.Version})
	}
	add("reason", o.Reason)
	if len(o.Incomplete) > 0 {
		fields = append(fields, manifests.Entry{Key: "incomplete", Value: anyList(o.Incomplete)})
	}
	return fields
}

// projected reduces a value to the keys of maps that a test names, because it compares no others. It
// keeps the test's order, and what matches as the test writes it.
func projected(want *manifests.Value, got any) any {
	literal, _ := want.Const()
	if subset(literal, got) {
		return want
	}
	switch g := got.(type) {
	case map[string]any:
		if want.Kind != manifests.Map {
			return got
		}
		out := manifests.Ordered{}
		for _, f := range want.Fields {
			if inner, there := g[f.Name]; there {
				out = append(out, manifests.Entry{Key: f.Name, Value: projected(f.Value, inner)})
			}
		}
		return out
	case []any:
		if want.Kind != manifests.List || len(want.Items) != len(g) {
			return got
		}
		out := make([]any, len(g))
		for i := range g {
			out[i] = projected(want.Items[i], g[i])
		}
		return out
	}
	return got
}

// compareField compares one field of a test's end.
func compareField(name string, want *manifests.Value, got any) []diffLine {
	line := func(v any) string {
		written := manifests.Flow(manifests.Ordered{{Key: name, Value: v}})
		return written[1 : len(written)-1] // without braces, as in a block
	}
	if literal, _ := want.Const(); subset(literal, got) {
		return []diffLine{{' ', line(want)}}
	}
	return []diffLine{{'-', line(want)}, {'+', line(projected(want, got))}}
}
