package jsonvalue

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"edda"
)

// canonicalOther handles what expressions can produce besides JSON's own
// types: sized integers, times, typed slices and string-keyed maps.
func canonicalOther(v any, depth int) (any, error) {
	switch v := v.(type) {
	case time.Time:
		return edda.FormatTime(v), nil
	case time.Duration:
		return v.String(), nil
	}
	rv := reflect.ValueOf(v)
	switch rv.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return int(rv.Int()), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if rv.Uint() > 1<<63-1 {
			return json.Number(strconv.FormatUint(rv.Uint(), 10)), nil
		}
		return int(rv.Uint()), nil
	case reflect.Float32, reflect.Float64:
		return number(rv.Float())
	case reflect.String:
		return rv.String(), nil
	case reflect.Slice, reflect.Array:
		return canonicalSlice(rv, depth)
	case reflect.Map:
		return canonicalAnyMap(rv, depth)
	}
	return nil, fmt.Errorf("a %T is not a JSON value", v)
}

func canonicalSlice(rv reflect.Value, depth int) (any, error) {
	out := make([]any, rv.Len())
	for i := range out {
		c, err := canonical(rv.Index(i).Interface(), depth+1)
		if err != nil {
			return nil, err
		}
		out[i] = c
	}
	return out, nil
}

func canonicalAnyMap(rv reflect.Value, depth int) (any, error) {
	out := make(map[string]any, rv.Len())
	for it := rv.MapRange(); it.Next(); {
		k := it.Key()
		for k.Kind() == reflect.Interface {
			k = k.Elem()
		}
		if k.Kind() != reflect.String {
			return nil, fmt.Errorf("a map key is a %s, not a string", k.Kind())
		}
		c, err := canonical(it.Value().Interface(), depth+1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.String(), err)
		}
		out[k.String()] = c
	}
	return out, nil
}
