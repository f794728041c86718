package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/emicklei/dot"
	"github.com/spf13/cobra"

	"edda/manifests"
	"edda/saga"
)

func (t *terminal) graphCommand() *cobra.Command {
	var format, file, name string
	c := &cobra.Command{
		Use: "graph PATH...", Short: "Draw sagas as Mermaid or DOT",
		Example: "  edda graph order.yaml\n  edda graph order.yaml --format dot | dot -Tsvg > order.svg",
		Args:    paths(),
		RunE: func(_ *cobra.Command, paths []string) error {
			if format == "svg" {
				return usagef("--format svg is no more: Graphviz draws it, edda graph … --format dot | dot -Tsvg")
			}
			if !slices.Contains(formats(), format) {
				return usagef("--format %s: want one of %s", format, strings.Join(formats(), ", "))
			}
			graphs, err := t.graphs(paths, name)
			if err != nil {
				return err
			}
			return t.write(file, draw(graphs, format))
		},
	}
	c.Flags().StringVar(&format, "format", "mermaid", "mermaid, or dot for Graphviz")
	offer(c, "format", formats())
	c.Flags().StringVarP(&file, "out", "o", "", "file to write (default: standard output)")
	c.Flags().StringVar(&name, "saga", "", "only this saga")
	return c
}

func formats() []string { return []string{"mermaid", "dot"} }

// graphs draws every saga that parses, even if it does not compile.
func (t *terminal) graphs(paths []string, name string) ([]*saga.Graph, error) {
	files, problems, err := manifests.ParseFiles(paths...)
	if err != nil {
		return nil, err
	}
	if problems.Failed() {
		problems.Print(t.err, t.color(t.err))
		return nil, &silentError{}
	}
	var out []*saga.Graph
	for _, m := range sagasOf(files) {
		if name == "" || name == m.Name.Text {
			out = append(out, saga.NewGraph(m))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("there is no saga to draw in these files")
	}
	return out, nil
}

func draw(graphs []*saga.Graph, format string) []byte {
	picture := dot.NewGraph(dot.Directed)
	if format == "mermaid" {
		for _, g := range graphs {
			fill(picture, g, mermaidShape)
		}
		return []byte(dot.MermaidFlowchart(picture, dot.MermaidTopToBottom))
	}
	for _, g := range graphs {
		fill(picture.Subgraph(g.Saga, dot.ClusterOption{}), g, dotShape)
	}
	return []byte(picture.String() + "\n")
}

func fill(picture *dot.Graph, g *saga.Graph, shape func(saga.NodeKind) any) {
	nodes := map[string]dot.Node{}
	for _, n := range g.Nodes {
		nodes[n.ID] = picture.Node(g.Saga+"/"+n.ID).Label(n.Label).Attr("shape", shape(n.Kind))
	}
	for _, e := range g.Edges {
		edge := picture.Edge(nodes[e.From], nodes[e.To])
		if e.Label != "" {
			edge.Label(e.Label)
		}
		if e.Undo {
			edge.Dashed()
		}
	}
}

// dotShape gives each kind a shape of its own, so that colour is not needed.
func dotShape(k saga.NodeKind) any {
	switch k {
	case saga.NodeTrigger:
		return "ellipse"
	case saga.NodeTimer:
		return "diamond"
	case saga.NodeEmit:
		return "cds"
	case saga.NodeUndo:
		return "parallelogram"
	case saga.NodeEnd:
		return "doublecircle"
	}
	return "box"
}

func mermaidShape(k saga.NodeKind) any {
	switch k {
	case saga.NodeTrigger:
		return dot.MermaidShapeStadium
	case saga.NodeTimer:
		return dot.MermaidShapeRhombus
	case saga.NodeEmit:
		return dot.MermaidShapeAsymmetric
	case saga.NodeUndo:
		return dot.MermaidShapeTrapezoid
	case saga.NodeEnd:
		return dot.MermaidShapeCircle
	}
	return dot.MermaidShapeRound
}

func (t *terminal) write(file string, content []byte) error {
	if file == "" {
		_, err := io.Copy(t.out, bytes.NewReader(content))
		return err
	}
	if err := os.WriteFile(file, content, 0o644); err != nil {
		return fmt.Errorf("write the graph: %w", err)
	}
	return nil
}
