package effects

import (
	"fmt"
	"maps"
	"strings"

	"edda/internal/jsonvalue"
	"edda/manifests"
)

// upcast turns a payload of version from into one of the next.
type upcast struct {
	from  int
	set   []assign
	unset [][]string
}

type assign struct {
	path  []string
	value *value
}

// namesUpcast lists the variables of an upcast. There are no secrets, because its values go into a
// payload.
func namesUpcast() []string { return []string{"payload", "id", "tenant"} }

// upcasts compiles the manifest's upcasts, the oldest first.
func (c *compiler) upcasts() []upcast {
	var out []upcast
	for _, u := range c.m.Upcast { // the parser has sorted them
		if u.From >= c.m.Version {
			c.errorf(u.Pos, fmt.Sprintf("this upcast makes version %d, and the effect is version %d: give it version: %d, or begin at an older version", u.From+1, c.m.Version, u.From+1))
		}
		out = append(out, c.upcast(u))
	}
	return out
}

func (c *compiler) upcast(u manifests.Upcast) upcast {
	out := upcast{from: u.From}
	for _, s := range u.Set {
		out.set = append(out.set, assign{strings.Split(s.Path.Text, "."), c.value(s.Value, namesUpcast())})
	}
	for _, path := range u.Unset {
		out.unset = append(out.unset, strings.Split(path.Text, "."))
	}
	return out
}

// upcast brings an older payload to the manifest's version. A version without an upcast leaves it
// unchanged.
func (e *Effect) upcast(c Command, payload any) (any, error) {
	for _, u := range e.upcasts {
		if c.Version == 0 || u.from < c.Version {
			continue
		}
		object, isMap := payload.(map[string]any)
		if payload != nil && !isMap {
			return nil, fmt.Errorf("upcast from version %d: the payload is no map", u.from)
		}
		next, err := u.apply(c, object)
		if err != nil {
			return nil, fmt.Errorf("upcast from version %d: %w", u.from, err)
		}
		if next != nil { // null stays null
			payload = next
		}
	}
	return payload, nil
}

// apply computes all values from the old payload, then sets and unsets.
func (u upcast) apply(c Command, payload map[string]any) (map[string]any, error) {
	vars := map[string]any{"payload": payload, "id": c.ID, "tenant": c.Tenant}
	values := make([]any, len(u.set))
	var err error
	for i, s := range u.set {
		if values[i], err = s.value.eval(vars); err != nil {
			return nil, err
		}
	}
	payload = maps.Clone(payload)
	if payload == nil && len(u.set) > 0 {
		payload = map[string]any{}
	}
	for i, s := range u.set {
		if err := jsonvalue.SetPath(payload, s.path, values[i]); err != nil {
			return nil, err
		}
	}
	for _, path := range u.unset {
		jsonvalue.UnsetPath(payload, path)
	}
	return payload, nil
}
