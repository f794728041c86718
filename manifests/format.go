package manifests

import (
	"bytes"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"edda/internal/yamllayout"
)

// Format returns the source of a file in the one style of manifests. It changes blanks and line ends
// only. If the YAML has errors it returns them, and no source.
//
// Before it returns a source it compares it with the old one: the YAML has the same nodes, and the lines
// that are not empty are the same but for blanks. So a comment stays with the line that it belongs to.
func Format(name string, source []byte) ([]byte, Problems) {
	f := &File{Name: name, Source: source}
	nodes, ps := f.nodes()
	if len(ps) > 0 {
		return nil, ps
	}
	text := []byte(yamllayout.Format(string(source)))
	if pos, same := f.sameAs(text, nodes); !same {
		return nil, Problems{{File: f, Pos: pos, Message: "edda fmt would change the meaning here, and leaves the file as " +
			"it is: this is an error of edda fmt; please report it with this value and the lines around it"}}
	}
	return text, nil
}

// SameButLayout reports whether two sources have the same YAML, whatever their blanks, line ends and
// comments. A source with errors has none.
func SameButLayout(a, b []byte) bool {
	before, ps := (&File{Source: a}).nodes()
	now, more := (&File{Source: b}).nodes()
	_, same := compare(before, now)
	return len(ps)+len(more) == 0 && same
}

// sameAs reports whether a formatted text has the lines and nodes of the file, and where it differs.
func (f *File) sameAs(text []byte, nodes []positioned) (Pos, bool) {
	now, _ := (&File{Name: f.Name, Source: text}).nodes()
	pos, same := compare(nodes, now)
	return pos, same && slices.Equal(solidLines(f.Source), solidLines(text))
}

// compare reports whether two files have the same nodes, and where the first one differs.
func compare(before, now []positioned) (Pos, bool) {
	for i, b := range before {
		if i == len(now) {
			return Pos{b.root.Line + b.before, b.root.Column}, false
		}
		if n := firstDifference(b.root, now[i].root); n != nil {
			return Pos{n.Line + b.before, n.Column}, false
		}
	}
	return Pos{1, 1}, len(before) == len(now)
}

// positioned is the root of a document, and the number of lines before its text.
type positioned struct {
	root   *yaml.Node
	before int
}

// nodes returns the documents of a file that are not empty.
func (f *File) nodes() ([]positioned, Problems) {
	chunks, p := f.chunks()
	if p != nil {
		return nil, Problems{*p}
	}
	var (
		out []positioned
		ps  Problems
	)
	for _, c := range chunks {
		r := newReader(f, c)
		if root := r.load(); root != nil && r.isMap(root) {
			out = append(out, positioned{root, c.before})
		}
		ps = append(ps, r.problems...)
	}
	return out, limited(f, ps)
}

// firstDifference returns the first node that differs in another tree; nil if none does.
func firstDifference(a, b *yaml.Node) *yaml.Node {
	if a.Kind != b.Kind || a.Style != b.Style || a.Tag != b.Tag || a.Value != b.Value || a.Anchor != b.Anchor ||
		len(a.Content) != len(b.Content) {
		return a
	}
	for i := range a.Content {
		if n := firstDifference(a.Content[i], b.Content[i]); n != nil {
			return n
		}
	}
	return nil
}

// solidLines returns the lines without blanks, except empty ones.
func solidLines(text []byte) (out []string) {
	blanks := strings.NewReplacer(" ", "", "\t", "")
	text = bytes.TrimLeft(text, "\ufeff")
	for _, l := range splitLines(text) {
		if s := blanks.Replace(string(text[l.start:l.end])); s != "" {
			out = append(out, s)
		}
	}
	return out
}
