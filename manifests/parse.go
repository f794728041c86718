package manifests

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

const (
	// maxSource bounds a file. The largest manifests that people keep have a few dozen KiB, and
	// the YAML scanner takes about a second for a hostile MiB.
	maxSource = 1 << 20
	// maxNodes bounds the values of a document with its aliases expanded, because an alias bomb of
	// 200 bytes has millions.
	maxNodes = 200_000
	// maxDepth bounds nesting, so that recursion over the tree needs no other guard.
	maxDepth = 100
	// maxDocuments bounds the documents of a file, because each costs a YAML parser.
	maxDocuments = 500
	// maxProblems bounds the problems reported for one file, because a hostile file has one for
	// each line.
	maxProblems = 200
)

// Parse parses one file of manifests and returns all problems at once. The file holds what could
// be read even if there are errors, so a caller must check [Problems.Failed] before using it.
func Parse(name string, source []byte) (*File, Problems) {
	f, ps := parse(name, source)
	return f, append(ps, twice([]*File{f})...)
}

// parse is Parse without the check for duplicate definitions.
func parse(name string, source []byte) (*File, Problems) {
	f := &File{Name: name, Source: source}
	chunks, p := f.chunks()
	if p != nil {
		return f, Problems{*p}
	}
	var ps Problems
	for _, c := range chunks {
		r := newReader(f, c)
		r.document()
		ps = append(ps, r.problems...)
	}
	if len(f.Sagas)+len(f.Effects) == 0 && len(ps) == 0 {
		ps = append(ps, Problem{File: f, Pos: Pos{1, 1}, Message: "the file holds neither a saga nor an effect: begin a document with saga: or effect:"})
	}
	return f, limited(f, ps)
}

// chunks splits the source into its documents. The problem says why it is not read at all.
func (f *File) chunks() ([]chunk, *Problem) {
	if p := refused(f); p != nil {
		return nil, p
	}
	chunks := documents(f.Source)
	if len(chunks) > maxDocuments {
		return nil, &Problem{File: f, Pos: Pos{1, 1}, Message: fmt.Sprintf("the file holds %d documents, more than %d: split it", len(chunks), maxDocuments)}
	}
	return chunks, nil
}

// refused returns the problem of a source that is too large or not UTF-8.
func refused(f *File) *Problem {
	if len(f.Source) > maxSource {
		return &Problem{File: f, Pos: Pos{1, 1}, Message: fmt.Sprintf("the file has %d bytes, more than %d: split it", len(f.Source), maxSource)}
	}
	for line, l := range splitLines(f.Source) {
		if text := f.Source[l.start:l.end]; !utf8.Valid(text) {
			return &Problem{File: f, Pos: Pos{line + 1, invalidColumn(text)}, Message: "the file is not UTF-8: save it as UTF-8", Rule: RuleSyntax}
		}
	}
	return nil
}

func invalidColumn(text []byte) int {
	for column := 1; ; column++ {
		c, size := utf8.DecodeRune(text)
		if c == utf8.RuneError && size <= 1 {
			return column
		}
		text = text[size:]
	}
}

func limited(f *File, ps Problems) Problems {
	if len(ps) <= maxProblems {
		return ps
	}
	last := Problem{File: f, Pos: ps[maxProblems].Pos, Message: "too many problems: the rest is not shown"}
	return append(ps[:maxProblems:maxProblems], last)
}

// chunk is the text of one document, and the number of lines before it.
type chunk struct {
	text   []byte // for the YAML parser: it may begin with a --- line
	source []byte // the document's own text
	before int
}

// documents splits a file at its --- and ... lines, so that a syntax error in one document does
// not hide the others. YAML allows these lines nowhere else.
func documents(source []byte) []chunk {
	source = bytes.TrimPrefix(source, []byte("\ufeff"))
	lines := splitLines(source)
	var chunks []chunk
	first := 0
	add := func(end int) {
		if first < end {
			chunks = append(chunks, newChunk(source, lines[first:end], first))
		}
	}
	for i, l := range lines {
		switch marker(source[l.start:l.end]) {
		case "---":
			add(i)
			first = i
		case "...":
			add(i)
			first = i + 1
		}
	}
	add(len(lines))
	return chunks
}

func newChunk(source []byte, lines []line, before int) chunk {
	end := lines[len(lines)-1].next
	c := chunk{text: source[lines[0].start:end], before: before}
	c.source = c.text
	if first := source[lines[0].start:lines[0].end]; marker(first) != "" && bare(first[3:]) {
		c.source = source[lines[0].next:end]
	}
	return c
}

// marker returns the document marker that a line begins with, or empty.
func marker(text []byte) string {
	if len(text) < 3 || len(text) > 3 && text[3] != ' ' && text[3] != '\t' {
		return ""
	}
	if m := string(text[:3]); m == "---" || m == "..." {
		return m
	}
	return ""
}

// bare reports whether a line has no content: blank, or a comment.
func bare(text []byte) bool {
	text = bytes.TrimLeft(text, " \t")
	return len(text) == 0 || text[0] == '#'
}

// line is the byte range of a line, and the start of the next one.
type line struct{ start, end, next int }

// splitLines splits a text where the YAML scanner counts lines: at \n, \r\n, \r and Unicode's NEL,
// LS and PS.
func splitLines(source []byte) []line {
	var lines []line
	start := 0
	for i := 0; i < len(source); {
		n := lineBreak(source[i:])
		if n == 0 {
			i++
			continue
		}
		lines = append(lines, line{start, i, i + n})
		i += n
		start = i
	}
	if start < len(source) {
		lines = append(lines, line{start, len(source), len(source)})
	}
	return lines
}

func lineBreak(b []byte) int {
	switch {
	case b[0] == '\n':
		return 1
	case b[0] == '\r' && len(b) > 1 && b[1] == '\n':
		return 2
	case b[0] == '\r':
		return 1
	case b[0] == 0xC2 && len(b) > 1 && b[1] == 0x85:
		return 2
	case b[0] == 0xE2 && len(b) > 2 && b[1] == 0x80 && (b[2] == 0xA8 || b[2] == 0xA9):
		return 3
	}
	return 0
}

// hash is the hex SHA-256 of a document's text, with line ends normalised to \n and without
// surrounding blank lines. So moving a document in its file keeps its hash.
func hash(source []byte) string {
	var lines [][]byte
	for _, l := range splitLines(source) {
		lines = append(lines, source[l.start:l.end])
	}
	blank := func(b []byte) bool { return len(bytes.TrimSpace(b)) == 0 }
	for len(lines) > 0 && blank(lines[0]) {
		lines = lines[1:]
	}
	for len(lines) > 0 && blank(lines[len(lines)-1]) {
		lines = lines[:len(lines)-1]
	}
	sum := sha256.Sum256(bytes.Join(lines, []byte("\n")))
	return hex.EncodeToString(sum[:])
}

// document reads the chunk's one document into the file.
func (r *reader) document() {
	root := r.load()
	if root == nil || !r.bounded(root) {
		return
	}
	root = deref(root)
	switch kind := r.documentKind(root); kind {
	case "saga":
		s := r.saga(root)
		s.Partial = r.lost
		s.Source, s.Hash = r.chunk.source, hash(r.chunk.source)
		r.file.Sagas = append(r.file.Sagas, s)
	case "effect":
		e := r.effect(root)
		e.Source, e.Hash = r.chunk.source, hash(r.chunk.source)
		r.file.Effects = append(r.file.Effects, e)
	}
}

// load returns the root node; nil if there is none or it does not parse.
func (r *reader) load() *yaml.Node {
	loader, err := yaml.NewLoader(bytes.NewReader(r.chunk.text))
	if err != nil {
		r.errorAt(Pos{1 + r.chunk.before, 1}, "%v", err)
		return nil
	}
	var n yaml.Node
	if err := loader.Load(&n); err != nil {
		if !errors.Is(err, io.EOF) {
			r.syntaxError(err)
		}
		return nil
	}
	if len(n.Content) == 0 || deref(n.Content[0]).Tag == "!!null" {
		return nil
	}
	return n.Content[0]
}

// bounded refuses a document that is too large or too deep with its aliases expanded.
func (r *reader) bounded(root *yaml.Node) bool {
	nodes := 0
	var fits func(n *yaml.Node, depth int) bool
	fits = func(n *yaml.Node, depth int) bool {
		if nodes++; nodes > maxNodes {
			r.errorf(n, "the document holds more than %d values, its aliases expanded", maxNodes)
			return false
		}
		if depth > maxDepth {
			r.errorf(n, "the document is nested deeper than %d", maxDepth)
			return false
		}
		if n.Kind == yaml.AliasNode {
			return fits(n.Alias, depth+1)
		}
		return !slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return !fits(c, depth+1) })
	}
	return fits(root, 0)
}

// documentKind is saga or effect; empty after a reported problem.
func (r *reader) documentKind(root *yaml.Node) string {
	if !r.isMap(root) {
		return ""
	}
	for i := 0; i < len(root.Content); i += 2 {
		if k := root.Content[i].Value; k == "saga" || k == "effect" {
			return k
		}
	}
	r.errorf(root, "the document says neither saga: nor effect:, so it is neither: begin it with %s", r.beginning(root))
	return ""
}

// isMap reports a document that is no map.
func (r *reader) isMap(root *yaml.Node) bool {
	if root.Kind != yaml.MappingNode {
		r.errorf(root, "a document is a map that begins with saga: or effect:, not %s", describe(root))
	}
	return root.Kind == yaml.MappingNode
}

// beginning is the first line that a document lacks, by the keys that it has.
func (r *reader) beginning(root *yaml.Node) string {
	if slices.ContainsFunc(r.providers, func(name string) bool { return has(root, name) }) {
		return "effect: name"
	}
	if has(root, "on") {
		return "saga: name"
	}
	return "saga: name, or effect: name; other YAML belongs in another folder"
}

// twice reports a saga of the same version, or an effect, that is defined more than once.
func twice(files []*File) Problems {
	var ps Problems
	seen := map[string]string{}
	check := func(f *File, what string, pos Pos) {
		if first, again := seen[what]; again {
			ps = append(ps, Problem{File: f, Pos: pos, Message: what + " is defined twice, first in " + first + ": keep one", Rule: RuleDuplicate})
			return
		}
		seen[what] = fmt.Sprintf("%s:%d", f.Name, pos.Line)
	}
	for _, f := range files {
		for _, s := range f.Sagas {
			check(f, fmt.Sprintf("saga %s version %d", s.Name.Text, s.Version), s.Name.Pos)
		}
		for _, e := range f.Effects {
			check(f, "effect "+e.Name.Text, e.Name.Pos)
		}
	}
	return ps
}
