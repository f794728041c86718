package saga

import (
	"slices"
	"strings"

	"edda/manifests"
)

// Graph is a manifest as nodes and edges: what leads to what.
type Graph struct {
	Saga    string
	Version int
	Nodes   []GraphNode
	Edges   []GraphEdge
}

// NodeKind is the kind of thing that a node stands for; it selects the shape.
type NodeKind string

// The kinds of nodes.
const (
	NodeTrigger NodeKind = "trigger" // an event, a signal, a schedule: from outside
	NodeStep    NodeKind = "step"    // an effect, an ask, a child saga, a group of them
	NodeEmit    NodeKind = "emit"    // a command, a fact, a message: nothing is waited for
	NodeTimer   NodeKind = "timer"
	NodeUndo    NodeKind = "undo" // the undo of a step
	NodeAct     NodeKind = "act"  // cancel or undo of something else
	NodeEnd     NodeKind = "end"  // done or fail
)

// GraphNode is one node. ID is unique within the graph.
type GraphNode struct {
	ID, Label string
	Kind      NodeKind
}

// GraphEdge leads from one node to another.
type GraphEdge struct {
	From, To, Label string
	Undo            bool // leads to the undo of From
}

// NewGraph builds the graph of a manifest. It needs no compiled program, so a manifest with errors
// has a graph, too.
func NewGraph(m *manifests.Saga) *Graph {
	g := &grapher{verbs: newVerbs(), graph: &Graph{Saga: m.Name.Text, Version: m.Version}, steps: map[string]bool{}}
	m.Walk(manifests.Visitor{Action: func(a *manifests.Action) {
		if v := g.verbs[a.Kind]; v.step || v.each || a.Kind == verbCommand && a.ID != nil {
			g.steps[stepID(a)] = true
		}
	}})
	if m.Deadline != nil {
		g.node("timer:saga.deadline", "deadline "+m.Deadline.Text, NodeTimer)
	}
	for _, h := range m.Handlers {
		g.handler(h)
	}
	return g.graph
}

type grapher struct {
	verbs verbs
	graph *Graph
	steps map[string]bool // ids of steps and groups
}

// edgeStart is the start of a new edge.
type edgeStart struct{ node, label string }

func (g *grapher) handler(h *manifests.Handler) {
	from := g.begin(h.Trigger).when(h.When)
	blocks := []*manifests.Case{{Block: manifests.Block{Do: h.Do}}}
	for _, c := range append(blocks, h.Cases...) {
		for _, a := range c.Do {
			g.action(from.when(c.When), a)
		}
	}
}

// begin returns the start of a handler's edges; the parts of an A & B lead to a node of their own.
func (g *grapher) begin(t manifests.Trigger) edgeStart {
	if len(t.Parts) == 1 {
		return g.trigger(t.Parts[0])
	}
	join := "join:" + t.Text
	g.node(join, t.Text, NodeTrigger)
	for _, part := range t.Parts {
		g.edge(g.trigger(part), join)
	}
	return edgeStart{node: join}
}

// when adds a condition to the label of the edges from a source.
func (s edgeStart) when(e *manifests.Expr) edgeStart {
	if e == nil {
		return s
	}
	condition := "[" + shorten(e.Source) + "]"
	s.label = strings.TrimSpace(s.label + " " + condition)
	return s
}

// shorten keeps a label readable.
func shorten(text string) string {
	const most = 40
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// trigger returns the node that raises a trigger: a step or timer of the saga, or an external one.
func (g *grapher) trigger(name string) edgeStart {
	if timer, ok := strings.CutPrefix(name, "timer."); ok {
		g.node("timer:"+timer, "timer "+timer, NodeTimer)
		return edgeStart{"timer:" + timer, "fires"}
	}
	if name == "saga.deadline" {
		g.node("timer:saga.deadline", "deadline", NodeTimer)
		return edgeStart{"timer:saga.deadline", "fires"}
	}
	if i := strings.LastIndexByte(name, '.'); i > 0 && g.steps[name[:i]] {
		g.node("step:"+name[:i], name[:i], NodeStep)
		return edgeStart{"step:" + name[:i], name[i+1:]}
	}
	g.node("on:"+name, name, NodeTrigger)
	return edgeStart{node: "on:" + name}
}

// action adds one action and returns the start of the edges to what waits for it.
func (g *grapher) action(from edgeStart, a *manifests.Action) edgeStart {
	return g.verbs[a.Kind].draw(g, from.when(a.If), a)
}

// place adds the node of an action, the edge to it, and its undo. It returns the source.
func (g *grapher) place(from edgeStart, a *manifests.Action, id, label string, kind NodeKind) edgeStart {
	g.node(id, label, kind)
	g.edge(from, id)
	g.undo(id, a.Undo)
	return from
}

func (g *grapher) drawStep(from edgeStart, a *manifests.Action) edgeStart {
	id, label := stepID(a), a.Kind+" "+a.Name.Text
	if id != a.Name.Text {
		label = id + ": " + label
	}
	g.place(from, a, "step:"+id, label, NodeStep)
	return edgeStart{"step:" + id, "ok"}
}

func (g *grapher) drawCommand(from edgeStart, a *manifests.Action) edgeStart {
	if a.ID == nil {
		return g.drawEmit(from, a)
	}
	return g.place(from, a, "step:"+stepID(a), "command "+a.Name.Text, NodeEmit)
}

func (g *grapher) drawEmit(from edgeStart, a *manifests.Action) edgeStart {
	text := strings.TrimSpace(a.Kind + " " + a.Name.Text)
	return g.place(from, a, "emit:"+text, text, NodeEmit)
}

func (g *grapher) drawTimer(from edgeStart, a *manifests.Action) edgeStart {
	return g.place(from, a, "timer:"+a.Name.Text, "timer "+a.Name.Text, NodeTimer)
}

func (g *grapher) drawAct(from edgeStart, a *manifests.Action) edgeStart {
	text := a.Kind + " " + a.Name.Text
	if a.Index != nil {
		text += "[" + shorten(a.Index.Expr.Source) + "]"
	}
	return g.place(from, a, "act:"+text, text, NodeAct)
}

// drawEnd names the end by the reason of a fail; all results of done are one end.
func (g *grapher) drawEnd(from edgeStart, a *manifests.Action) edgeStart {
	text := a.Kind
	if a.Kind == "fail" && a.Value != nil {
		reason, _ := a.Value.Const()
		if word, ok := reason.(string); ok {
			text += " " + shorten(word)
		}
	}
	return g.place(from, a, "end:"+text, text, NodeEnd)
}

func (g *grapher) drawNothing(from edgeStart, _ *manifests.Action) edgeStart { return from }

func (g *grapher) drawCompensate(from edgeStart, a *manifests.Action) edgeStart {
	g.undo(from.node, a.Undo)
	return from
}

func (g *grapher) drawSeq(from edgeStart, a *manifests.Action) edgeStart {
	for _, element := range a.Seq {
		from = g.action(from, element)
	}
	return from
}

func (g *grapher) drawEach(from edgeStart, a *manifests.Action) edgeStart {
	id := "step:" + stepID(a)
	g.node(id, "each "+stepID(a), NodeStep)
	g.edge(from, id)
	for _, member := range a.Do {
		g.action(edgeStart{id, "item"}, member)
	}
	return edgeStart{id, "all"}
}

func (g *grapher) undo(step string, undo *manifests.Action) {
	if undo == nil {
		return
	}
	id := "undo:" + undo.Kind + " " + undo.Name.Text
	g.node(id, undo.Name.Text, NodeUndo)
	g.graph.Edges = append(g.graph.Edges, GraphEdge{From: step, To: id, Label: "undo", Undo: true})
}

func (g *grapher) node(id, label string, kind NodeKind) {
	for i, n := range g.graph.Nodes {
		if n.ID == id {
			if len(label) > len(n.Label) { // it was added as a trigger first, by its bare name
				g.graph.Nodes[i].Label = label
			}
			return
		}
	}
	g.graph.Nodes = append(g.graph.Nodes, GraphNode{ID: id, Label: label, Kind: kind})
}

func (g *grapher) edge(from edgeStart, to string) {
	e := GraphEdge{From: from.node, To: to, Label: from.label}
	if !slices.Contains(g.graph.Edges, e) {
		g.graph.Edges = append(g.graph.Edges, e)
	}
}
