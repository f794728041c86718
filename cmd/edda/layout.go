package main

import (
	"cmp"
	"slices"

	"edda/saga"
)

// The measures of a picture, in pixels.
const (
	letterWidth = 7.3 // of a monospaced letter of 12 px, generously
	nodeHeight  = 30.0
	nodePadding = 30.0
	layerHeight = 76.0
	nodeGap     = 26.0
	// sweeps over the layers, after which neither order nor place changes much.
	sweeps = 12
)

// place is a node of a layout, or where an edge passes through a layer.
type place struct {
	node     int // of the graph; -1 where an edge passes
	x, width float64
	layer    int
	up, down []*place
}

// layout is a graph in layers, as Sugiyama, Tagawa and Toda draw them (1981):
// every edge leads downwards, but for those that close a cycle.
type layout struct {
	graph  *saga.Graph
	index  map[string]int // of the nodes, by id
	nodes  []*place
	layers [][]*place
	routes [][]*place // of each edge, downwards
	back   []bool     // of each edge: it leads upwards
	width  float64
}

func newLayout(g *saga.Graph) *layout {
	l := &layout{graph: g, index: map[string]int{}, routes: make([][]*place, len(g.Edges)), back: make([]bool, len(g.Edges))}
	for i, n := range g.Nodes {
		l.index[n.ID] = i
		l.nodes = append(l.nodes, &place{node: i, width: float64(len([]rune(n.Label)))*letterWidth + nodePadding})
	}
	l.turn()
	l.rank()
	l.route()
	for i := range sweeps {
		l.order(i%2 == 0)
	}
	l.spread()
	return l
}

// ends are the nodes of an edge, upper one first.
func (l *layout) ends(edge int) (from, to int) {
	from, to = l.index[l.graph.Edges[edge].From], l.index[l.graph.Edges[edge].To]
	if l.back[edge] {
		return to, from
	}
	return from, to
}

// turn finds the edges that close a cycle, depth first.
func (l *layout) turn() {
	const fresh, open, closed = 0, 1, 2
	state := make([]int, len(l.nodes))
	var visit func(n int)
	visit = func(n int) {
		state[n] = open
		for e := range l.graph.Edges {
			from, to := l.ends(e)
			switch {
			case from != n || from == to || l.back[e]:
			case state[to] == open:
				l.back[e] = true
			case state[to] == fresh:
				visit(to)
			}
		}
		state[n] = closed
	}
	for n := range l.nodes {
		if state[n] == fresh {
			visit(n)
		}
	}
}

// rank puts each node below all that lead to it.
func (l *layout) rank() {
	for changed := true; changed; {
		changed = false
		for e := range l.graph.Edges {
			if from, to := l.ends(e); from != to && l.nodes[to].layer <= l.nodes[from].layer {
				l.nodes[to].layer, changed = l.nodes[from].layer+1, true
			}
		}
	}
	for _, n := range l.nodes {
		l.put(n)
	}
}

func (l *layout) put(p *place) {
	for len(l.layers) <= p.layer {
		l.layers = append(l.layers, nil)
	}
	l.layers[p.layer] = append(l.layers[p.layer], p)
}

// route leads each edge through every layer between its ends.
func (l *layout) route() {
	for e := range l.graph.Edges {
		from, to := l.ends(e)
		at := l.nodes[from]
		l.routes[e] = []*place{at}
		for from != to && at != l.nodes[to] {
			next := l.nodes[to]
			if at.layer+1 < next.layer {
				next = &place{node: -1, layer: at.layer + 1}
				l.put(next)
			}
			at.down, next.up = append(at.down, next), append(next.up, at)
			l.routes[e], at = append(l.routes[e], next), next
		}
	}
}

// order sorts each layer by where its neighbours in the one before stand.
func (l *layout) order(downwards bool) {
	for i := range l.layers {
		if !downwards {
			i = len(l.layers) - 1 - i
		}
		for n, p := range l.layers[i] {
			p.x = float64(n)
		}
		slices.SortStableFunc(l.layers[i], func(a, b *place) int { return cmp.Compare(a.middle(downwards), b.middle(downwards)) })
		for n, p := range l.layers[i] {
			p.x = float64(n)
		}
	}
}

// middle is where the neighbours of a place stand on average; where it has none
// it stays.
func (p *place) middle(above bool) float64 {
	near := p.down
	if above {
		near = p.up
	}
	if len(near) == 0 {
		return p.x
	}
	sum := 0.0
	for _, n := range near {
		sum += n.x
	}
	return sum / float64(len(near))
}

// spread gives places their x: near their neighbours, none on another.
func (l *layout) spread() {
	for i := range sweeps + 1 {
		for n := range l.layers {
			if i%2 == 1 {
				n = len(l.layers) - 1 - n
			}
			arrange(l.layers[n], i%2 == 0)
		}
	}
	l.close()
}

// close takes out what is empty from top to bottom.
func (l *layout) close() {
	all := slices.SortedFunc(slices.Values(slices.Concat(l.layers...)), func(a, b *place) int {
		return cmp.Compare(a.x-a.width/2, b.x-b.width/2)
	})
	right, shift := 0.0, 0.0 // of all before, as they are now
	for i, p := range all {
		gap := 0.0
		if i > 0 {
			gap = nodeGap
		}
		if left := p.x - p.width/2 - shift; i == 0 || left > right+gap {
			shift += left - right - gap
		}
		p.x -= shift
		right = max(right, p.x+p.width/2)
	}
	l.width = right
}

// arrange moves the places of a layer towards their neighbours and keeps their
// order: pushed to the right where they would meet, then all back by half of it.
func arrange(layer []*place, above bool) {
	wanted := make([]float64, len(layer))
	for i, p := range layer {
		wanted[i] = p.middle(above)
	}
	pushed := 0.0
	for i, p := range layer {
		p.x = wanted[i]
		if i > 0 {
			p.x = max(p.x, layer[i-1].x+(layer[i-1].width+p.width)/2+nodeGap)
		}
		pushed += p.x - wanted[i]
	}
	for _, p := range layer {
		p.x -= pushed / float64(len(layer))
	}
}
