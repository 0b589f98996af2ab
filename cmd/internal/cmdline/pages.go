package cmdline

import (
	_ "embed"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/urfave/cli/v2"
)

// completeKey says, in the environment, that a shell asks how the words could go
// on. Without it nothing is taken for such a question: the words may be those of
// a program that isthmus is to run.
const completeKey = "ISTHMUS_COMPLETE"

//go:embed completion.bash
var completionBash string

//go:embed completion.zsh
var completionZsh string

// asksForEnd reports whether a shell asks how the words could go on after --,
// which the library would not take for a question: it would run them.
func asksForEnd(words []string) bool {
	return os.Getenv(completeKey) != "" && slices.Contains(words, "--")
}

// completionCommand prints what has a shell complete the program's words.
func completionCommand(program string) *cli.Command {
	return &cli.Command{
		Name:        "completion",
		Usage:       "print a script for shell completion of these commands and their flags",
		Description: "For this shell:\n\n  source <(" + program + " completion bash)\n\nIt completes commands and flags, and file names elsewhere.",
		ArgsUsage:   "bash | zsh | fish",
		Action: func(c *cli.Context) error {
			if err := Words(c, "completion", 1); err != nil {
				return err
			}
			fill := strings.NewReplacer("NAME", c.App.Name, "FUNC", "_"+strings.ReplaceAll(c.App.Name, "-", "_"))
			var text string
			var err error
			switch shell := c.Args().First(); shell {
			case "bash":
				text = fill.Replace(completionBash)
			case "zsh":
				text = fill.Replace(completionZsh)
			case "fish":
				text, err = c.App.ToFishCompletion()
			default:
				return Usage(fmt.Sprintf("completion: unknown shell %q: want bash, zsh or fish", shell))
			}
			if err == nil {
				_, err = fmt.Fprint(c.App.Writer, text)
			}
			return err
		},
	}
}

// versionCommand prints what --version prints.
func versionCommand() *cli.Command {
	return &cli.Command{Name: "version", Usage: "print the version", Action: func(c *cli.Context) error {
		cli.VersionPrinter(c)
		return nil
	}}
}

// manCommand prints the program's manual page.
func manCommand(program string) *cli.Command {
	return &cli.Command{
		Name:        "man",
		Usage:       "print the manual page of these commands",
		Description: "To read it when no package has installed it:\n\n  " + program + " man | man -l -",
		Action: func(c *cli.Context) error {
			page, err := c.App.ToMarkdown()
			if err != nil {
				return err
			}
			// Else [VALUE] (default: X) would be a link to X.
			page = "% " + program + " 1\n\n" + strings.ReplaceAll(page, "] (", "\\] (")
			_, err = c.App.Writer.Write(md2man.Render([]byte(page)))
			return err
		},
	}
}
