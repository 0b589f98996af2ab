package matrix

import (
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gomedium"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
)

// Dimensions of the picture, in pixels.
const (
	cellWidth  = 58
	cellHeight = 40
	gap        = 3 // between cells
	margin     = 36
	lineHeight = 34
	textSize   = 20
	titleSize  = 28
)

var (
	paper = color.RGBA{255, 255, 255, 255}
	dark  = color.RGBA{0x20, 0x26, 0x2e, 255}
	soft  = color.RGBA{0x55, 0x60, 0x6c, 255}
)

// png writes the grid as a picture.
func (t *table) png(w io.Writer) error {
	p, err := newPicture(t)
	if err != nil {
		return err
	}
	p.heading()
	p.labels()
	p.cells()
	p.legends()
	return png.Encode(w, p.img)
}

// picture is a grid being drawn.
type picture struct {
	*table
	img         *image.RGBA
	text, title font.Face
	left, top   int // of the first cell
	captions    []legend
}

func newPicture(t *table) (*picture, error) {
	p := &picture{table: t, captions: t.summary()}
	var err error
	if p.text, err = face(goregular.TTF, textSize); err != nil {
		return nil, err
	}
	if p.title, err = face(gomedium.TTF, titleSize); err != nil {
		return nil, err
	}
	label := 0
	for _, name := range t.presets {
		label = max(label, measure(p.text, name))
	}
	p.left, p.top = margin+label+14, margin+4*lineHeight+label+14
	width := p.left + len(t.presets)*cellWidth + margin
	width = max(width, 2*margin+measure(p.title, t.title), 2*margin+measure(p.text, t.totals()))
	height := p.top + len(t.presets)*cellHeight + margin/2 + len(p.captions)*lineHeight + margin
	p.img = image.NewRGBA(image.Rect(0, 0, width, height))
	draw.Draw(p.img, p.img.Bounds(), image.NewUniform(paper), image.Point{}, draw.Src)
	return p, nil
}

// face returns a font of one size.
func face(ttf []byte, size float64) (font.Face, error) {
	f, err := opentype.Parse(ttf)
	if err != nil {
		return nil, err
	}
	return opentype.NewFace(f, &opentype.FaceOptions{Size: size, DPI: 72, Hinting: font.HintingFull})
}

func measure(f font.Face, text string) int { return font.MeasureString(f, text).Ceil() }

func (p *picture) heading() {
	write(p.img, p.title, dark, margin, margin+titleSize, p.table.title)
	write(p.img, p.text, soft, margin, margin+titleSize+lineHeight, p.totals())
	write(p.img, p.text, soft, margin, margin+titleSize+2*lineHeight,
		"rows ask, columns are asked for; in a cell: set-up in ms")
}

// labels writes the names of rows, and those of columns upward.
func (p *picture) labels() {
	for i, name := range p.presets {
		x := p.left - 14 - measure(p.text, name)
		write(p.img, p.text, dark, x, p.top+i*cellHeight+(cellHeight+textSize*7/10)/2, name)
		upward(p.img, p.text, dark, p.left+i*cellWidth+(cellWidth+textSize*7/10)/2, p.top-14, name)
	}
}

func (p *picture) cells() {
	p.each(func(row, column int, c *Cell) {
		at := image.Rect(0, 0, cellWidth-gap, cellHeight-gap).Add(image.Pt(p.left+column*cellWidth, p.top+row*cellHeight))
		back := rgb(legendOf(c).color)
		draw.Draw(p.img, at, image.NewUniform(back), image.Point{}, draw.Src)
		if c.Tries > 1 {
			foot := at
			foot.Min.Y = foot.Max.Y - 4
			draw.Draw(p.img, foot, image.NewUniform(color.RGBA{0, 0, 0, 90}), image.Point{}, draw.Over)
		}
		text := label(c)
		write(p.img, p.text, ink(back), at.Min.X+(at.Dx()-measure(p.text, text))/2, at.Min.Y+(at.Dy()+textSize*7/10)/2, text)
	})
}

func (p *picture) legends() {
	y := p.top + len(p.presets)*cellHeight + margin/2
	for _, l := range p.captions {
		swatch := image.Rect(0, 0, textSize, textSize).Add(image.Pt(p.left, y+(lineHeight-textSize)/2))
		draw.Draw(p.img, swatch, image.NewUniform(rgb(l.color)), image.Point{}, draw.Src)
		write(p.img, p.text, dark, p.left+textSize+12, y+(lineHeight+textSize*7/10)/2, l.name+"  –  "+l.caption())
		y += lineHeight
	}
}

// write draws text whose first letter starts at (x, y).
func write(img draw.Image, f font.Face, c color.Color, x, y int, text string) {
	d := font.Drawer{Dst: img, Src: image.NewUniform(c), Face: f, Dot: fixed.P(x, y)}
	d.DrawString(text)
}

// upward draws text that is read from the bottom up; its first letter stands
// left of (x, y).
func upward(img *image.RGBA, f font.Face, c color.Color, x, y int, text string) {
	metrics := f.Metrics()
	ascent := metrics.Ascent.Ceil()
	line := image.NewRGBA(image.Rect(0, 0, measure(f, text), ascent+metrics.Descent.Ceil()))
	write(line, f, c, 0, ascent, text)
	turned := image.NewRGBA(image.Rect(0, 0, line.Bounds().Dy(), line.Bounds().Dx()))
	for u := range line.Bounds().Dx() {
		for v := range line.Bounds().Dy() {
			turned.SetRGBA(v, turned.Bounds().Dy()-1-u, line.RGBAAt(u, v))
		}
	}
	at := turned.Bounds().Add(image.Pt(x-ascent, y-turned.Bounds().Dy()))
	draw.Draw(img, at, turned, image.Point{}, draw.Over)
}

// rgb reads #rrggbb.
func rgb(text string) color.RGBA {
	c := color.RGBA{A: 255}
	if _, err := fmt.Sscanf(text, "#%02x%02x%02x", &c.R, &c.G, &c.B); err != nil {
		panic("matrix: color " + text + ": " + err.Error()) // all are in this package
	}
	return c
}

// hex is the inverse of rgb.
func hex(c color.RGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }

// ink returns a text color that is readable on back.
func ink(back color.RGBA) color.RGBA {
	if light := 299*int(back.R) + 587*int(back.G) + 114*int(back.B); light < 145_000 {
		return paper
	}
	return dark
}
