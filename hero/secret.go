package hero

import (
	"path"
	"slices"
	"strings"
)

// Masked replaces the value of a secret variable.
const Masked = "***"

// SecretNames returns the default patterns of the names of secret variables. A * matches
// anything, and case does not matter.
func SecretNames() []string {
	return []string{"*SECRET*", "*PASSWORD*", "*PASSWD*", "*TOKEN*", "*API_KEY*", "*APIKEY*", "*PRIVATE_KEY*", "*CREDENTIAL*"}
}

// IsSecret reports whether the name matches one of the patterns.
func IsSecret(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(strings.ToUpper(p), strings.ToUpper(name))
		return ok
	})
}

// MaskSecrets returns a copy of the variables in which the values of secret ones are masked.
func MaskSecrets(patterns []string, vars map[string]string) map[string]string {
	if vars == nil {
		return nil
	}
	out := make(map[string]string, len(vars))
	for name, value := range vars {
		if IsSecret(patterns, name) {
			value = Masked
		}
		out[name] = value
	}
	return out
}
