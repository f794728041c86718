package saga

import (
	"cmp"
	"slices"
	"strconv"

	"edda/manifests"
)

// actionCompiler compiles the actions of one handler and gives each its path.
type actionCompiler struct {
	*compiler
	handler *handler
	labels  map[string]int
}

func (b *actionCompiler) list(src []*manifests.Action, names []string) []*action {
	var out []*action
	for _, a := range src {
		out = append(out, b.action(a, names))
	}
	return out
}

func (b *actionCompiler) branch(src *manifests.Block, when *manifests.Expr, names []string) *branch {
	return &branch{
		when: b.expr(when, names),
		set:  b.assigns(src.Set, names), unset: paths(src.Unset),
		do: b.list(src.Do, names),
	}
}

func (b *actionCompiler) action(src *manifests.Action, names []string) *action {
	a := &action{src: src, verb: b.p.verbs[src.Kind], label: b.label(src)}
	a.path = b.handler.trigger + "/" + a.label
	b.p.actions[a.path] = a
	a.iff = b.expr(src.If, names)
	a.with = b.value(src.With, names)
	a.to, a.key = b.value(src.To, names), b.value(src.Key, names)
	a.after, a.at, a.every = b.value(src.After, names), b.value(src.At, names), b.value(src.Every, names)
	a.zone, a.index = b.value(src.Zone, names), b.value(src.Index, names)
	a.due, a.value = b.value(src.DueValue, names), b.value(src.Value, names)
	a.set, a.unset = b.assigns(src.Set, names), paths(src.Unset)
	if a.verb.compile != nil {
		a.verb.compile(b, a, names)
	}
	if src.Undo != nil {
		a.undo = b.undo(a, src.Undo, names)
	}
	needs := map[string]bool{}
	if a.undo != nil {
		a.undo.names(needs)
	}
	for _, inner := range a.seq {
		inner.names(needs)
	}
	a.needs = sortedKeys(needs)
	return a
}

func (b *actionCompiler) seq(a *action, names []string) {
	a.seq = b.list(a.src.Seq, names)
	b.p.seqs[a.path] = a.seq
}

func (b *actionCompiler) message(a *action, names []string) {
	a.value = b.value(a.src.Message, names)
}

func (b *actionCompiler) each(a *action, names []string) {
	a.each = b.expr(a.src.Each, names)
	a.do = b.list(a.src.Do, slices.Concat(names, []string{cmp.Or(a.src.As, defaultAs), eachIndex}))
	steps, misplaced := 0, false
	for _, m := range a.do {
		misplaced = misplaced || !m.verb.step && !m.verb.inEach
		switch {
		case m.verb.step:
			steps++
		case m.verb.nests:
			b.errorf(m.src.Pos, "%s cannot stand in an each: start a child saga for each item instead", m.src.Kind)
		case !m.verb.inEach:
			b.errorf(m.src.Pos, "%s cannot stand in an each: it holds one effect, ask or start, and any number of commands, events and messages", m.src.Kind)
		}
	}
	if a.src.ID != nil || steps > 0 { // also with a mistake inside, or its handlers would be reported, too
		b.p.groups[a.stepID()] = true
	}
	if steps > 1 || steps == 0 && !misplaced && !b.p.m.Partial { // the parser may have left one out
		b.errorf(a.src.Pos, "an each holds exactly one effect, ask or start; this one holds %d", steps)
	}
}

// undo compiles the undo of a step; its expressions also see input, result and id.
func (b *actionCompiler) undo(a *action, src *manifests.Action, names []string) *action {
	inner := slices.Concat(names, undoNames)
	before := len(b.uses)
	out := &action{
		src: src, verb: b.p.verbs[src.Kind], label: a.label + ".undo", path: a.path + ".undo",
		with: b.value(src.With, inner), to: b.value(src.To, inner), iff: b.expr(src.If, inner),
		due: b.value(src.DueValue, inner),
	}
	own := b.uses[before:]
	byID := slices.ContainsFunc(own, func(u use) bool {
		return u.prog != nil && slices.ContainsFunc(u.prog.Refs(), func(ref []string) bool { return ref[0] == "id" })
	})
	for i := range own {
		own[i].needsResult, own[i].undoes = !byID, a.src
	}
	return out
}

// label is the action's part of its path. It is unique in the handler, and does not change when
// unrelated parts of the manifest do.
func (b *actionCompiler) label(src *manifests.Action) string {
	label := src.Kind
	if src.Name.Text != "" {
		label += ":" + src.Name.Text
	}
	if src.ID != nil {
		label = src.ID.Text
	}
	b.labels[label]++
	if n := b.labels[label]; n > 1 {
		label += "#" + strconv.Itoa(n)
	}
	return label
}

// names adds every name that the action and its inner actions refer to.
func (a *action) names(into map[string]bool) {
	addNames(into, a.iff)
	addNames(into, a.each)
	for _, v := range []*value{a.with, a.to, a.key, a.after, a.at, a.every, a.zone, a.index, a.due, a.value} {
		v.names(into)
	}
	for _, s := range a.set {
		s.value.names(into)
	}
	if a.undo != nil {
		a.undo.names(into)
	}
	for _, inner := range a.seq {
		inner.names(into)
	}
	for _, inner := range a.do {
		inner.names(into)
	}
}
