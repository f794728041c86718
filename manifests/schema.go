package manifests

import (
	_ "embed"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"
)

//go:embed schema.json
var schemaFile []byte

// Schema returns a JSON Schema of one document of a manifest, for editors:
//
//	# yaml-language-server: $schema=edda.schema.json
//
// The reader takes the words, the keys of maps and the forms of names from it. The reader is
// stricter: it also checks what a schema cannot say.
func Schema() []byte { return slices.Clone(schemaFile) }

// grammar is the part of the schema that the reader follows. It is safe for concurrent use.
type grammar struct {
	Defs      map[string]*definition `json:"$defs"`
	words     []string               // that make a map an action
	providers []string
	inputs    []string // of a test's step
	outputs   []string // of an entry of expect
}

// definition is a part of the schema: a map with its keys, or a scalar.
type definition struct {
	Ref          string `json:"$ref"`
	Description  string
	Pattern      string
	Enum         []string
	Properties   map[string]*definition
	Required     []string
	AnyOf, OneOf []*definition

	form *regexp.Regexp // of Pattern
}

// readGrammar reads the schema once. It panics if the schema is not valid, which a test excludes.
var readGrammar = sync.OnceValue(func() *grammar {
	g := &grammar{}
	if err := json.Unmarshal(schemaFile, g); err != nil {
		panic("manifests: schema.json: " + err.Error())
	}
	for _, d := range g.Defs {
		if d.Pattern != "" {
			d.form = regexp.MustCompile(d.Pattern)
		}
	}
	for _, a := range g.Defs["action"].AnyOf {
		g.words = append(g.words, g.Defs[strings.TrimPrefix(a.Ref, "#/$defs/")].first()...)
	}
	for _, p := range g.Defs["effect"].OneOf {
		g.providers = append(g.providers, p.Required...)
	}
	g.outputs = g.Defs["expect"].first()
	g.inputs = g.Defs["test_step"].first()
	return g
})

// first returns the first key that a map must have, or that of each of its alternatives.
func (d *definition) first() []string {
	if len(d.Required) > 0 {
		return d.Required[:1]
	}
	var out []string
	for _, alternative := range slices.Concat(d.AnyOf, d.OneOf) {
		out = append(out, alternative.first()...)
	}
	return out
}

// object returns the map of a definition that also allows null.
func (d *definition) object() *definition {
	if d.Properties == nil && len(d.AnyOf) > 0 {
		return d.AnyOf[0]
	}
	return d
}

// with returns the alternative of a definition that must have a key.
func (d *definition) with(key string) *definition {
	list := slices.Concat(d.AnyOf, d.OneOf)
	return list[slices.IndexFunc(list, func(a *definition) bool { return slices.Contains(a.Required, key) })]
}

// known returns the functions of the keys that a map may have.
func (d *definition) known(all keys) keys {
	out := keys{}
	for key := range d.Properties {
		out[key] = all[key]
	}
	return out
}

// Words lists the words that make a map an action.
func Words() []string { return slices.Clone(readGrammar().words) }

// Providers lists the words that name an effect's provider.
func Providers() []string { return slices.Clone(readGrammar().providers) }
