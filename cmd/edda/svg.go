package main

import (
	"bytes"
	"fmt"
	"html"

	"edda/saga"
)

const (
	margin      = 24.0
	titleHeight = 34.0
	loopWidth   = 34.0 // of an edge from a node to itself
)

// svg draws the sagas below each other.
func svg(graphs []*saga.Graph) []byte {
	var body bytes.Buffer
	top, width := margin, 0.0
	for _, g := range graphs {
		l := newLayout(g)
		fmt.Fprintf(&body, "<g transform=\"translate(%.0f %.0f)\">\n<text class=\"title\" x=\"0\" y=\"14\">%s</text>\n<g transform=\"translate(0 %.0f)\">\n", margin, top, html.EscapeString(g.Saga), titleHeight)
		l.draw(&body)
		body.WriteString("</g>\n</g>\n")
		top += titleHeight + float64(len(l.layers))*layerHeight
		width = max(width, l.width)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" font-family="monospace" font-size="12">
<style>.title{font-size:15px;font-weight:bold}.node{fill:#fff;stroke:#333}.edge{fill:none;stroke:#666}.undo{stroke-dasharray:5 4}.name{text-anchor:middle}.label{fill:#555;font-size:11px;text-anchor:middle;stroke:#fff;stroke-width:4;paint-order:stroke}</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" fill="#666"/></marker><marker id="tip-back" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto-start-reverse"><path d="M0 0 8 4 0 8z" fill="#666"/></marker></defs>
<rect width="100%%" height="100%%" fill="#fff"/>
`, width+2*margin+loopWidth, top)
	body.WriteTo(&out)
	out.WriteString("</svg>\n")
	return out.Bytes()
}

func (l *layout) draw(w *bytes.Buffer) {
	for e := range l.graph.Edges {
		l.edge(w, e)
	}
	for i, p := range l.nodes {
		n := l.graph.Nodes[i]
		y := float64(p.layer) * layerHeight
		shape(w, n.Kind, p.x-p.width/2, y, p.width)
		fmt.Fprintf(w, "<text class=\"name\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", p.x, y+nodeHeight/2+4, html.EscapeString(n.Label))
	}
}

// shape draws each kind so that it is told apart without colour.
func shape(w *bytes.Buffer, kind saga.NodeKind, x, y, width float64) {
	const h, slant = nodeHeight, 10.0
	switch kind {
	case saga.NodeTrigger:
		fmt.Fprintf(w, "<rect class=\"node\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.0f\" rx=\"%.0f\"/>\n", x, y, width, h, h/2)
	case saga.NodeEnd:
		fmt.Fprintf(w, "<rect class=\"node\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.0f\" rx=\"%.0f\"/>\n", x, y, width, h, h/2)
		fmt.Fprintf(w, "<rect class=\"node\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.0f\" rx=\"%.0f\"/>\n", x+3, y+3, width-6, h-6, h/2-3)
	case saga.NodeTimer:
		outline(w, "", x+slant, y, x+width-slant, y, x+width, y+h/2, x+width-slant, y+h, x+slant, y+h, x, y+h/2)
	case saga.NodeEmit:
		outline(w, "", x, y, x+width-slant, y, x+width, y+h/2, x+width-slant, y+h, x, y+h)
	case saga.NodeUndo:
		outline(w, " undo", x+slant, y, x+width, y, x+width-slant, y+h, x, y+h)
	default:
		fmt.Fprintf(w, "<rect class=\"node\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.0f\"/>\n", x, y, width, h)
	}
}

func outline(w *bytes.Buffer, class string, points ...float64) {
	fmt.Fprintf(w, "<polygon class=\"node%s\" points=\"", class)
	for _, p := range points {
		fmt.Fprintf(w, "%.1f ", p)
	}
	w.WriteString("\"/>\n")
}

// edge draws a curve through its route, with the tip where the edge leads.
func (l *layout) edge(w *bytes.Buffer, e int) {
	edge, route := l.graph.Edges[e], l.routes[e]
	class, tip := "edge", "marker-end"
	if edge.Undo {
		class += " undo"
	}
	if l.back[e] {
		tip = "marker-start"
	}
	path, x, y := curve(route)
	if len(route) == 1 {
		path, x, y = selfEdge(route[0])
	}
	fmt.Fprintf(w, "<path class=\"%s\" %s=\"url(#tip%s)\" d=\"%s\"/>\n", class, tip, map[bool]string{true: "-back"}[l.back[e]], path)
	if edge.Label != "" {
		fmt.Fprintf(w, "<text class=\"label\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", x, y, html.EscapeString(edge.Label))
	}
}

// curve is the path, and the middle of its first piece for the label.
func curve(route []*place) (path string, x, y float64) {
	path = fmt.Sprintf("M%.1f %.1f", route[0].x, route[0].foot())
	for i, to := range route[1:] {
		from := route[i]
		half := (from.foot() + to.head()) / 2
		path += fmt.Sprintf("C%.1f %.1f %.1f %.1f %.1f %.1f", from.x, half, to.x, half, to.x, to.head())
		if i == 0 {
			x, y = (from.x+to.x)/2, half+4
		}
		if to.node < 0 {
			path += fmt.Sprintf("L%.1f %.1f", to.x, to.foot())
		}
	}
	return path, x, y
}

func selfEdge(p *place) (path string, x, y float64) {
	right, top := p.x+p.width/2, p.head()
	return fmt.Sprintf("M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f", right, top+8, right+loopWidth, top, right+loopWidth, top+nodeHeight, right, top+nodeHeight-8),
		right + loopWidth/2, top - 2
}

func (p *place) head() float64 { return float64(p.layer) * layerHeight }
func (p *place) foot() float64 { return p.head() + nodeHeight }
