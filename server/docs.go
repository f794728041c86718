package server

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/zap"
)

// The documentation is one page, generated from the OpenAPI description at the first request
// for it. It has no script and loads nothing, so that it works offline and under a strict
// content security policy.
var (
	//go:embed docs.html
	docsHTML string
	//go:embed docs.css
	docsCSS string
)

// docsGroup is the operations under one tag.
type docsGroup struct {
	Name, ID   string
	Operations []docsOperation
}

// docsOperation is one operation on the page.
type docsOperation struct {
	ID, Method, Path, Summary, Who, Curl string
	Params                               []docsField
	Body, Answer                         *docsField
}

// docsField is a parameter, a body or a property.
type docsField struct {
	Name, In, Type, Link, Text string
	Required                   bool
	Fields                     []docsField // of an anonymous object
}

// docsSchema is one named object.
type docsSchema struct {
	Name, Text string
	Fields     []docsField
}

// docsPage is the data of the page.
type docsPage struct {
	Title, Version, Description string
	Style                       template.CSS
	Groups                      []docsGroup
	Schemas                     []docsSchema
}

// maxNested bounds the depth of nested objects on the page. The OpenAPI description has
// the deeper ones.
const maxNested = 4

// docs serves the page.
func (s *Server) docs() {
	page := sync.OnceValues(func() ([]byte, error) { return renderDocs(s.api.OpenAPI()) }) // which takes as long as all the rest of New
	s.routes.HandleFunc("GET /docs", func(w http.ResponseWriter, _ *http.Request) {
		text, err := page()
		if err != nil {
			s.options.Log.Error("write the documentation", zap.Error(err))
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		ownPage(w.Header())
		_, _ = w.Write(text) // an error here means that the client has disconnected
	})
}

// ownPage sets the headers of an HTML page whose only style is docsCSS.
func ownPage(h http.Header) {
	sum := sha256.Sum256([]byte(docsCSS))
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
}

func renderDocs(api *huma.OpenAPI) ([]byte, error) {
	t, err := template.New("docs").Parse(docsHTML)
	if err != nil {
		return nil, err
	}
	page := docsPage{
		Title: api.Info.Title, Version: api.Info.Version, Description: api.Info.Description,
		Style:  template.CSS(docsCSS), // our own
		Groups: docsGroups(api), Schemas: docsSchemas(api),
	}
	var out bytes.Buffer
	err = t.Execute(&out, page)
	return out.Bytes(), err
}

func docsGroups(api *huma.OpenAPI) []docsGroup {
	byTag := map[string][]docsOperation{}
	for path, item := range api.Paths {
		for method, op := range map[string]*huma.Operation{http.MethodGet: item.Get, http.MethodPost: item.Post, http.MethodPut: item.Put, http.MethodPatch: item.Patch, http.MethodDelete: item.Delete} {
			if op == nil {
				continue
			}
			tag := "other"
			if len(op.Tags) > 0 {
				tag = op.Tags[0]
			}
			byTag[tag] = append(byTag[tag], docsOf(method, path, op))
		}
	}
	var out []docsGroup
	for tag, list := range byTag {
		slices.SortFunc(list, func(a, b docsOperation) int {
			return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method))
		})
		out = append(out, docsGroup{tag, "tag-" + strings.ReplaceAll(tag, " ", "-"), list})
	}
	slices.SortFunc(out, func(a, b docsGroup) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func docsOf(method, path string, op *huma.Operation) docsOperation {
	d := docsOperation{
		ID: strings.Trim(strings.NewReplacer("/", "-", "{", "", "}", "").Replace(strings.ToLower(method)+path), "-"), Method: method, Path: path, Summary: op.Summary,
		Who: whoMay(rights()[method+" "+path]),
	}
	for _, p := range op.Parameters {
		f := fieldOf(p.Name, p.Schema, p.Required, 0)
		f.In, f.Text = p.In, cmp.Or(p.Description, f.Text)
		d.Params = append(d.Params, f)
	}
	if op.RequestBody != nil {
		d.Body = contentOf(op.RequestBody.Content)
	}
	for status, response := range op.Responses {
		if strings.HasPrefix(status, "2") && response != nil && len(response.Content) > 0 {
			d.Answer = contentOf(response.Content)
		}
	}
	d.Curl = curl(method, path, d)
	return d
}

func contentOf(content map[string]*huma.MediaType) *docsField {
	const usual = "application/json" // before the formats of CloudEvents
	for _, name := range append([]string{usual}, slices.Sorted(maps.Keys(content))...) {
		if m := content[name]; m != nil && m.Schema != nil {
			f := fieldOf("", m.Schema, false, 0)
			return &f
		}
	}
	return nil
}

// curl returns a curl command for the operation.
func curl(method, path string, d docsOperation) string {
	line := "curl"
	if method != http.MethodGet {
		line += " -X " + method
	}
	if d.Who != "anybody" {
		line += ` -H "Authorization: Bearer $EDDA_TOKEN"`
	}
	for _, p := range d.Params {
		if strings.EqualFold(p.Name, tenantHeader) {
			line += " -H 'x-tenant-id: TENANT'"
		}
	}
	if d.Body != nil {
		line += " -H 'Content-Type: application/json' -d '{…}'"
	}
	return line + ` "$EDDA_URL` + path + `"`
}

// whoMay describes the right of a route.
func whoMay(r right) string {
	if r.open {
		return "anybody"
	}
	who := articled(r.role)
	switch r.scope {
	case ofTenant:
		return who + " of the tenant"
	case ofProcess:
		return who + " of all tenants (*)"
	}
	return who
}

const schemaPrefix = "#/components/schemas/"

// fieldOf describes a field by its schema.
func fieldOf(name string, s *huma.Schema, required bool, depth int) docsField {
	f := docsField{Name: name, Required: required}
	if s == nil {
		f.Type = "any"
		return f
	}
	f.Type, f.Link = typeOf(s)
	f.Text = strings.Join(remarks(s), "; ")
	of := s
	if s.Items != nil {
		of = s.Items
	}
	if depth < maxNested && of.Ref == "" {
		f.Fields = fieldsOf(of, depth+1)
	}
	return f
}

func fieldsOf(s *huma.Schema, depth int) (out []docsField) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		out = append(out, fieldOf(name, s.Properties[name], slices.Contains(s.Required, name), depth))
	}
	return out
}

// typeOf returns a type in words, and the name of its object if it has one.
func typeOf(s *huma.Schema) (text, link string) {
	switch {
	case s.Ref != "":
		link = strings.TrimPrefix(s.Ref, schemaPrefix)
		return link, link
	case s.Type == huma.TypeArray && s.Items != nil:
		text, link = typeOf(s.Items)
		return "list of " + text, link
	case s.Type == "":
		return "any JSON", ""
	case s.Format != "":
		return s.Type + " (" + s.Format + ")", ""
	}
	if more, ok := s.AdditionalProperties.(*huma.Schema); ok && s.Type == huma.TypeObject {
		text, link = typeOf(more)
		return "map of " + text, link
	}
	return s.Type, ""
}

// remarks lists the constraints of a schema besides its type.
func remarks(s *huma.Schema) (out []string) {
	if s.Description != "" {
		out = append(out, s.Description)
	}
	if len(s.Enum) > 0 {
		out = append(out, "one of "+asJSON(s.Enum))
	}
	if s.Default != nil {
		out = append(out, "default "+asJSON(s.Default))
	}
	if s.Minimum != nil {
		out = append(out, fmt.Sprintf("at least %v", *s.Minimum))
	}
	if s.Maximum != nil {
		out = append(out, fmt.Sprintf("at most %v", *s.Maximum))
	}
	if s.MaxLength != nil {
		out = append(out, fmt.Sprintf("at most %d characters", *s.MaxLength))
	}
	if len(s.Examples) > 0 {
		out = append(out, "such as "+asJSON(s.Examples[0]))
	}
	return out
}

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

func docsSchemas(api *huma.OpenAPI) (out []docsSchema) {
	all := api.Components.Schemas.Map()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, docsSchema{name, all[name].Description, fieldsOf(all[name], 1)})
	}
	return out
}
