package manifests

import (
	_ "embed"
	"encoding/json"
	"errors"
)

//go:embed schema.json
var schemaFile []byte

// Schema is a JSON Schema of one document of a manifest, for editors:
//
//	# yaml-language-server: $schema=edda.schema.json
//
// It is maintained by hand, because the tree does not have the shape of the YAML. A test compares
// its keys with those of the parser, which is stricter.
func Schema() ([]byte, error) {
	if !json.Valid(schemaFile) {
		return nil, errors.New("the manifest schema is not JSON")
	}
	return append([]byte(nil), schemaFile...), nil
}
