package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"edda/hero"
	"edda/hero/coordinator"
	"edda/hero/flow"
	"edda/hero/jsonrpc"
	"edda/internal/files"
	"edda/manifests"
)

// flowFile is a flow as a person writes it: its jobs have names, by which they depend
// on each other.
type flowFile struct {
	Name    string
	ID      uint32 // chosen when 0, as are the jobs'
	Context uint32
	Actor   uint32
	Env     map[string]string
	Nodes   []flowFileNode
}

// flowFileNode is one job of the file.
type flowFileNode struct {
	Name    string
	Job     hero.Job // its Dependends are filled in once every job has an id
	URL     string   // of its supervisor
	Depends []string // names of other nodes

	at      *yaml.Node
	depends []*yaml.Node
}

// flowReader reads a file and collects everything that is wrong with it.
type flowReader struct {
	file     *manifests.File
	dir      string // that its file: is relative to
	problems manifests.Problems
}

// flowKeys are the fields of the file, each with the other names that the documents have
// for it.
var (
	flowKeys = map[string][]string{
		"name": {"flow"}, "id": nil, "context": {"context_id"}, "actor": {"caller", "caller_id"}, "env": {"env_vars"}, "nodes": {"jobs"},
	}
	nodeKeys = map[string][]string{
		"name": nil, "id": nil, "type": {"script_type"}, "script": {"payload"}, "file": nil, "executor": nil, "timeout": nil, "queue_timeout": nil,
		"retries": nil, "env": {"env_vars"}, "depends": {"dependends", "dependencies"}, "prerequisites": nil, "supervisor_url": nil,
	}
)

// readFlowFile reads a flow from YAML or JSON. It returns all problems of the file at once.
func readFlowFile(name, dir string, text []byte) (flowFile, manifests.Problems) {
	r := &flowReader{file: &manifests.File{Name: name, Source: text}, dir: dir}
	root := r.load(text)
	if root == nil {
		return flowFile{}, r.problems
	}
	f := r.flow(root)
	r.graph(f)
	return f, r.problems.Limited()
}

func (r *flowReader) errorf(n *yaml.Node, format string, args ...any) {
	r.problems = append(r.problems, manifests.Problem{File: r.file, Pos: manifests.Pos{Line: n.Line, Column: n.Column}, Message: fmt.Sprintf(format, args...)})
}

// load gives the root of the one document, nil where there is none.
func (r *flowReader) load(text []byte) *yaml.Node {
	if strings.HasPrefix(strings.TrimSpace(string(text)), "{") { // YAML takes no tabs before a line, JSON does
		text = bytes.ReplaceAll(text, []byte("\t"), []byte(" "))
	}
	in := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	switch err := in.Decode(&doc); {
	case errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0:
		r.errorf(&yaml.Node{Line: 1, Column: 1}, "the file is empty: a flow has a context and nodes")
		return nil
	case err != nil:
		r.syntax(err)
		return nil
	}
	if err := in.Decode(&more); err == nil {
		r.errorf(&more, "the file holds a second document: one file is one flow")
		return nil
	}
	return doc.Content[0]
}

var yamlLine = regexp.MustCompile(`line (\d+)`)

func (r *flowReader) syntax(err error) {
	at := &yaml.Node{Line: 1, Column: 1}
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		at.Line, _ = strconv.Atoi(m[1])
	}
	r.errorf(at, "this is no YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
}

// deref follows an alias to what it stands for.
func deref(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// fields are the members of an object by their names; what nobody understands is named.
func (r *flowReader) fields(n *yaml.Node, what string, keys map[string][]string) map[string]*yaml.Node {
	if n.Kind != yaml.MappingNode {
		r.errorf(n, "%s: want fields and values, such as %s: …", what, slices.Sorted(maps.Keys(keys))[0])
		return nil
	}
	canonical, known := map[string]string{}, slices.Sorted(maps.Keys(keys))
	for name, others := range keys {
		canonical[name] = name
		for _, other := range others {
			canonical[other] = name
		}
	}
	out, called := map[string]*yaml.Node{}, map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := deref(n.Content[i]), deref(n.Content[i+1])
		name, ok := canonical[key.Value]
		switch {
		case !ok:
			hint := "it has " + strings.Join(known, ", ")
			if near := manifests.Nearest(key.Value, slices.Sorted(maps.Keys(canonical))); near != "" {
				hint = "did you mean " + near + "?"
			}
			r.errorf(n.Content[i], "%s has no field %s: %s", what, key.Value, hint)
		case out[name] != nil && called[name] == key.Value:
			r.errorf(n.Content[i], "%s says %s twice", what, key.Value)
		case out[name] != nil:
			r.errorf(n.Content[i], "%s says %s and %s, which are the same: give one of them", what, called[name], key.Value)
		default:
			out[name], called[name] = value, key.Value
		}
	}
	for name, value := range out {
		if value.Tag == "!!null" {
			delete(out, name) // as if it were left out
		}
	}
	return out
}

func (r *flowReader) flow(root *yaml.Node) flowFile {
	at := r.fields(root, "a flow", flowKeys)
	f := flowFile{
		Name: r.word(at["name"], "name"), ID: r.number(at["id"], "id", math.MaxUint32), Context: r.number(at["context"], "context", math.MaxUint32),
		Actor: r.number(at["actor"], "actor", math.MaxUint32), Env: r.env(at["env"]),
	}
	nodes := at["nodes"]
	switch {
	case nodes == nil && at != nil:
		r.errorf(root, "a flow needs nodes: a list of jobs, each with a name, a type and a script")
	case nodes != nil && (nodes.Kind != yaml.SequenceNode || len(nodes.Content) == 0):
		r.errorf(nodes, "nodes: want a list of jobs, each with a name, a type and a script")
	case nodes != nil && len(nodes.Content) > flow.MaxNodes:
		r.errorf(nodes, "nodes: %d jobs are more than the %d that one flow may have: split it", len(nodes.Content), flow.MaxNodes)
	case nodes != nil:
		for _, n := range nodes.Content {
			f.Nodes = append(f.Nodes, r.node(deref(n)))
		}
	}
	return f
}

func (r *flowReader) node(n *yaml.Node) flowFileNode {
	before := len(r.problems)
	at := r.fields(n, "a node", nodeKeys)
	node := flowFileNode{at: n, Name: r.word(at["name"], "name"), URL: r.word(at["supervisor_url"], "supervisor_url"), depends: r.items(at["depends"], "depends")}
	for _, d := range node.depends {
		node.Depends = append(node.Depends, d.Value)
	}
	j := &node.Job
	j.ID = r.number(at["id"], "id", math.MaxUint32)
	j.Script, j.Executor = r.script(at), r.word(at["executor"], "executor")
	j.Timeout, j.QueueTimeout = r.seconds(at["timeout"], "timeout"), r.seconds(at["queue_timeout"], "queue_timeout")
	j.Retries = uint8(r.number(at["retries"], "retries", math.MaxUint8))
	j.EnvVars = r.env(at["env"])
	for _, p := range r.items(at["prerequisites"], "prerequisites") {
		j.Prerequisites = append(j.Prerequisites, p.Value)
	}
	var err error
	if word := r.word(at["type"], "type"); word != "" {
		if j.ScriptType, err = hero.ParseScriptType(word); err != nil {
			r.errorf(at["type"], "type: %v", err)
		}
	}
	switch {
	case len(r.problems) > before:
	case node.Name == "":
		r.errorf(n, "a node needs a name, by which others depend on it")
	case j.ScriptType == "":
		r.errorf(n, "node %s needs a type: the language of its script, such as python", node.Name)
	default:
		r.check(node)
	}
	return node
}

// check asks what a coordinator would say of the job.
func (r *flowReader) check(n flowFileNode) {
	j := n.Job
	if j.ID == 0 {
		j.ID = 1 // as it will have one
	}
	complain := func(err error) {
		if no := (*jsonrpc.Error)(nil); errors.As(err, &no) {
			d, _ := no.Data.(coordinator.Detail)
			r.errorf(n.at, "node %s: %s %s", n.Name, strings.TrimPrefix(d.Field, "job."), d.Why)
		}
	}
	complain(coordinator.CheckJob("job", j))
	complain(coordinator.CheckURL("job.supervisor_url", n.URL))
}

// script is the text that a job runs, or what is in a file beside the flow's.
func (r *flowReader) script(at map[string]*yaml.Node) string {
	switch script, file := at["script"], at["file"]; {
	case script != nil && file != nil:
		r.errorf(file, "a node has a script or a file, not both")
	case file != nil:
		path := r.word(file, "file")
		if path == "" {
			return ""
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(r.dir, path)
		}
		text, err := files.Read(path, files.Most)
		if err != nil {
			r.errorf(file, "file: %v", err)
		} else if strings.TrimSpace(string(text)) == "" {
			r.errorf(file, "file: %s is empty", path)
		}
		return string(text)
	case script != nil:
		return r.text(script, "script")
	}
	return ""
}

// text is a value of one piece, as it is written.
func (r *flowReader) text(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode {
		r.errorf(n, "%s: want a text", what)
		return ""
	}
	return n.Value
}

// word is a text that may be left out, but not be empty.
func (r *flowReader) word(n *yaml.Node, what string) string {
	if n == nil {
		return ""
	}
	text := r.text(n, what)
	if n.Kind == yaml.ScalarNode && strings.TrimSpace(text) == "" {
		r.errorf(n, "%s is empty: fill it in, or leave it out", what)
	}
	return text
}

func (r *flowReader) items(n *yaml.Node, what string) (out []*yaml.Node) {
	switch {
	case n == nil:
	case n.Kind == yaml.ScalarNode: // one may stand alone
		out = []*yaml.Node{n}
	case n.Kind != yaml.SequenceNode:
		r.errorf(n, "%s: want a list of names", what)
	default:
		for _, item := range n.Content {
			out = append(out, deref(item))
		}
	}
	seen := map[string]bool{}
	for _, item := range out {
		if r.word(item, what) != "" && seen[item.Value] {
			r.errorf(item, "%s: %s is there twice", what, item.Value)
		}
		seen[item.Value] = true
	}
	return out
}

func (r *flowReader) number(n *yaml.Node, what string, most uint64) uint32 {
	if n == nil {
		return 0
	}
	v, err := strconv.ParseUint(n.Value, 10, 64)
	if n.Kind != yaml.ScalarNode || err != nil || v > most {
		r.errorf(n, "%s: want a whole number from 0 to %d", what, most)
		return 0
	}
	return uint32(v)
}

// seconds reads a duration, or a number of seconds, as the documents have it.
func (r *flowReader) seconds(n *yaml.Node, what string) uint32 {
	if n == nil {
		return 0
	}
	d, err := manifests.ParseDuration(n.Value)
	if s, notNumber := strconv.ParseUint(n.Value, 10, 32); notNumber == nil {
		d, err = time.Duration(s)*time.Second, nil
	}
	if n.Kind != yaml.ScalarNode || err != nil || d < time.Second || d%time.Second != 0 || d/time.Second > math.MaxUint32 {
		r.errorf(n, "%s: want whole seconds, such as 30, 30s, 5m or 2h", what)
		return 0
	}
	return uint32(d / time.Second)
}

func (r *flowReader) env(n *yaml.Node) map[string]string {
	out := map[string]string{}
	if n == nil {
		return out
	}
	if n.Kind != yaml.MappingNode {
		r.errorf(n, "env: want variables and their values, such as STAGE: test")
		return out
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := deref(n.Content[i]), deref(n.Content[i+1])
		_, twice := out[key.Value]
		switch {
		case twice:
			r.errorf(n.Content[i], "env says %s twice", key.Value)
		case value.Kind != yaml.ScalarNode:
			r.errorf(n.Content[i], "env: %s: want a text; put what has parts in quotes, as JSON", key.Value)
		case value.Tag == "!!null":
			out[key.Value] = ""
		default:
			out[key.Value] = value.Value
		}
	}
	return out
}

// graph refuses names that are no nodes of the file, and ways round.
func (r *flowReader) graph(f flowFile) {
	at := map[string]int{}
	ids := map[uint32]string{}
	for i, n := range f.Nodes {
		if n.Name == "" {
			continue // which was said
		}
		if first, twice := at[n.Name]; twice {
			r.errorf(n.at, "the name %s is that of the node in line %d, too: give each its own", n.Name, f.Nodes[first].at.Line)
			continue
		}
		at[n.Name] = i
		if id := n.Job.ID; id != 0 && ids[id] != "" {
			r.errorf(n.at, "node %s has the id %d, as node %s has", n.Name, id, ids[id])
		} else if id != 0 {
			ids[id] = n.Name
		}
	}
	names := slices.Sorted(maps.Keys(at))
	for _, n := range f.Nodes {
		for _, d := range n.depends {
			if _, ok := at[d.Value]; ok || d.Value == "" {
				continue
			}
			hint := "the nodes are " + brief(strings.Join(names, ", "))
			if near := manifests.Nearest(d.Value, names); near != "" && len(d.Value) > 2 { // of two letters everything is near
				hint = "did you mean " + near + "?"
			}
			r.errorf(d, "node %s depends on %s, which is no node of this flow: %s", n.Name, d.Value, hint)
		}
		for _, p := range n.Job.Prerequisites {
			if _, ok := at[p]; ok {
				r.errorf(n.at, "node %s has the node %s among its prerequisites, which are conditions outside of the flow: put it into depends", n.Name, p)
			}
		}
	}
	if len(r.problems) > 0 || len(f.Nodes) == 0 {
		return
	}
	numbered := f.numbered(1, false)
	_, err := flow.Define(numbered.flow(), numbered.jobs())
	var no *flow.GraphError
	switch {
	case errors.As(err, &no) && len(no.Cycle) > 0:
		first := numbered.byID(no.Cycle[0])
		var way []string
		for _, id := range no.Cycle {
			way = append(way, numbered.byID(id).Name)
		}
		r.errorf(first.depends[0], "the nodes wait for each other: %s", strings.Join(way, " → "))
	case err != nil:
		r.errorf(f.Nodes[0].at, "%v", err)
	}
}

// numbered gives every node an id, from first up, and what it depends on. With keep, those
// that the file gives stay.
func (f flowFile) numbered(first uint32, keep bool) flowFile {
	ids := map[string]uint32{}
	f.Nodes = slices.Clone(f.Nodes)
	for i := range f.Nodes {
		n := &f.Nodes[i]
		if !keep || n.Job.ID == 0 {
			n.Job.ID = first + uint32(i)
		}
		ids[n.Name] = n.Job.ID
	}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		n.Job.Dependends = nil
		for _, name := range n.Depends {
			n.Job.Dependends = append(n.Job.Dependends, ids[name])
		}
		slices.Sort(n.Job.Dependends)
	}
	return f
}

func (f flowFile) byID(id uint32) flowFileNode {
	i := slices.IndexFunc(f.Nodes, func(n flowFileNode) bool { return n.Job.ID == id })
	return f.Nodes[max(i, 0)]
}

// flow is the flow as flow.create takes it.
func (f flowFile) flow() hero.Flow {
	out := hero.Flow{ID: f.ID, ContextID: f.Context, CallerID: f.Actor, Name: f.Name, EnvVars: f.Env}
	for _, n := range f.Nodes {
		out.Jobs = append(out.Jobs, n.Job.ID)
		out.Nodes = append(out.Nodes, hero.FlowNode{ID: n.Job.ID, Name: n.Name, SupervisorURL: n.URL})
	}
	return out
}

// jobs are its jobs as job.create takes them.
func (f flowFile) jobs() []hero.Job {
	var out []hero.Job
	for _, n := range f.Nodes {
		j := n.Job
		j.ContextID, j.CallerID = f.Context, f.Actor
		out = append(out, j)
	}
	return out
}
