package manifests

import (
	"embed"
	"io/fs"
)

//go:embed examples/*.yaml
var embedded embed.FS

// Examples holds complete sagas with their tests, and the effects they use.
func Examples() fs.FS {
	sub, err := fs.Sub(embedded, "examples")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return sub
}
