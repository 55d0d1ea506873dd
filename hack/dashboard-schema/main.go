// Checks dashboards against Grafana's schema: every field has to be one that Grafana knows, with a value of its
// type, also in the options of panels and queries.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins()
	failed := false
	for _, path := range os.Args[1:] {
		if err := check(path); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

func check(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var board dashboard.Dashboard
	err = board.UnmarshalJSONStrict(content)
	var found cog.BuildErrors
	if errors.As(err, &found) && len(found) == 0 {
		return nil // the library returns an empty list
	}
	return err
}
