package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"

	"edda/manifests"
	"edda/saga"
)

// examples are the graphs of the sagas that come with the program.
func examples(t *testing.T) []*saga.Graph {
	t.Helper()
	var out []*saga.Graph
	err := fs.WalkDir(manifests.Examples(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !manifestFile(name) {
			return err
		}
		text, err := fs.ReadFile(manifests.Examples(), name)
		file, _ := manifests.Parse(name, text)
		for _, m := range file.Sagas {
			out = append(out, saga.NewGraph(m))
		}
		return err
	})
	if err != nil || len(out) < 6 {
		t.Fatalf("%d examples, %v", len(out), err)
	}
	return out
}

// A reminder that arms itself again, and one that goes back two steps.
func cyclic() *saga.Graph {
	g := &saga.Graph{Saga: "a<b>"}
	for _, id := range []string{"a", "b", "c", "d"} {
		g.Nodes = append(g.Nodes, saga.GraphNode{ID: id, Label: strings.Repeat(id, 12), Kind: saga.NodeStep})
	}
	for _, e := range []string{"ab", "bc", "cd", "da", "bb", "ad"} {
		g.Edges = append(g.Edges, saga.GraphEdge{From: e[:1], To: e[1:], Label: "when <&>", Undo: e == "ad"})
	}
	return g
}

func TestNothingInAPictureCoversAnother(t *testing.T) {
	for _, g := range append(examples(t), cyclic()) {
		l := newLayout(g)
		for _, layer := range l.layers {
			for i, p := range layer {
				if left, right := p.x-p.width/2, p.x+p.width/2; left < -0.01 || right > l.width+0.01 {
					t.Errorf("%s: a place from %.1f to %.1f in a picture of %.1f", g.Saga, left, right, l.width)
				}
				if i > 0 && p.x-p.width/2 < layer[i-1].x+layer[i-1].width/2+nodeGap-0.01 {
					t.Errorf("%s: two places of a layer meet", g.Saga)
				}
			}
		}
		for e, route := range l.routes {
			for i := range route[1:] {
				if route[i+1].layer != route[i].layer+1 {
					t.Errorf("%s: edge %d leaps", g.Saga, e)
				}
			}
		}
	}
}

func TestAPictureShowsEverythingAndIsXML(t *testing.T) {
	for _, g := range append(examples(t), cyclic()) {
		picture := svg([]*saga.Graph{g})
		if n := bytes.Count(picture, []byte(`<path class="edge`)); n != len(g.Edges) {
			t.Errorf("%s: %d edges, want %d", g.Saga, n, len(g.Edges))
		}
		var texts strings.Builder
		for d := xml.NewDecoder(bytes.NewReader(picture)); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", g.Saga, err)
			}
			if text, ok := token.(xml.CharData); ok {
				texts.Write(text)
			}
		}
		for _, n := range g.Nodes {
			if !strings.Contains(texts.String(), n.Label) {
				t.Errorf("%s: %q is missing", g.Saga, n.Label)
			}
		}
		if !bytes.Equal(picture, svg([]*saga.Graph{g})) {
			t.Errorf("%s: another picture the second time", g.Saga)
		}
	}
}
