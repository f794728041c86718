package manifests

import (
	"cmp"
	"slices"
)

// Visitor has a function for each kind of part of a saga; nil skips the kind.
type Visitor struct {
	Handler func(*Handler)
	Action  func(*Action)
	Expr    func(*Expr)
}

// Walk visits the handlers, actions and expressions of a saga in document
// order. Actions that undo another are visited as actions too.
func (s *Saga) Walk(v Visitor) {
	w := &walk{v: v}
	w.expr(s.Key)
	for _, d := range s.Schedule {
		w.value(d.With)
	}
	for _, e := range s.Events {
		for _, u := range e.Upcast {
			w.assigns(u.Set)
		}
	}
	for _, h := range s.Handlers {
		w.handler(h)
	}
	w.run()
}

// Walk visits the handler, its actions and its expressions in document order.
func (h *Handler) Walk(v Visitor) {
	w := &walk{v: v}
	w.handler(h)
	w.run()
}

// Walk visits the action, those in it, and their expressions in document order.
func (a *Action) Walk(v Visitor) {
	w := &walk{v: v}
	w.action(a)
	w.run()
}

// walk collects the visits, because the tree groups parts that a manifest may write in any order.
// It sorts them before it calls the visitor.
type walk struct {
	v      Visitor
	visits []visit
}

type visit struct {
	pos  Pos
	make func()
}

func (w *walk) run() {
	slices.SortStableFunc(w.visits, func(a, b visit) int { return a.pos.Compare(b.pos) })
	for _, v := range w.visits {
		v.make()
	}
}

// Compare orders positions in a file.
func (p Pos) Compare(o Pos) int {
	return cmp.Or(cmp.Compare(p.Line, o.Line), cmp.Compare(p.Column, o.Column))
}

func (w *walk) expr(e *Expr) {
	if e != nil && w.v.Expr != nil {
		w.visits = append(w.visits, visit{e.Pos, func() { w.v.Expr(e) }})
	}
}

func (w *walk) value(v *Value) { v.Exprs(w.expr) }

func (w *walk) assigns(set []Assign) {
	for _, a := range set {
		w.value(a.Value)
	}
}

func (w *walk) handler(h *Handler) {
	if w.v.Handler != nil {
		w.visits = append(w.visits, visit{h.Pos, func() { w.v.Handler(h) }})
	}
	w.expr(h.Key)
	for _, l := range h.Let {
		w.expr(l.Expr)
	}
	w.expr(h.When)
	w.block(Block{Set: h.Set, Do: h.Do})
	for _, c := range h.Cases {
		w.expr(c.When)
		w.block(c.Block)
	}
	if h.Newer != nil {
		w.block(*h.Newer)
	}
}

func (w *walk) block(b Block) {
	w.assigns(b.Set)
	w.actions(b.Do)
}

func (w *walk) actions(list []*Action) {
	for _, a := range list {
		w.action(a)
	}
}

func (w *walk) action(a *Action) {
	if a == nil {
		return
	}
	if w.v.Action != nil {
		w.visits = append(w.visits, visit{a.Pos, func() { w.v.Action(a) }})
	}
	w.expr(a.If)
	w.expr(a.Each)
	for _, v := range []*Value{a.With, a.To, a.Key, a.Message, a.After, a.At, a.Every, a.Zone, a.DueValue, a.Index, a.Value} {
		w.value(v)
	}
	w.assigns(a.Set)
	w.action(a.Undo)
	w.actions(a.Seq)
	w.actions(a.Do)
}
