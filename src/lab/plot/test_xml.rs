//! Reader of pictures, for tests.

use svg::node::element::tag::Type;
use svg::parser::Event;

/// All texts and all path data of a picture in well-formed XML.
pub(super) struct Picture {
    pub texts: Vec<String>,
    pub paths: Vec<String>,
}

pub(super) fn read(svg: &str) -> Picture {
    let mut open = Vec::new();
    let mut picture = Picture { texts: Vec::new(), paths: Vec::new() };
    for event in svg::read(svg).expect("a document") {
        match event {
            Event::Error(error) => panic!("{error}"),
            Event::Text(text) => picture.texts.push(text.to_owned()),
            Event::Tag(name, kind, attributes) => {
                if let Some(data) = attributes.get("d") {
                    picture.paths.push(data.to_string());
                }
                match kind {
                    Type::Start => open.push(name.to_owned()),
                    Type::End => assert_eq!(open.pop().as_deref(), Some(name)),
                    Type::Empty => assert!(!open.is_empty()),
                }
                for value in attributes.values() {
                    assert!(!value.contains(['<', '"']), "{value}");
                    assert!(!value.contains("NaN") && !value.contains("inf"), "{name}: {value}");
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(open.is_empty());
    // Outside of tags, every `&` begins an escape, and no character is a control character.
    for (at, _) in svg.match_indices('&') {
        let escape = ["&amp;", "&lt;", "&gt;"];
        assert!(escape.iter().any(|e| svg[at..].starts_with(e)), "{}", &svg[at..at + 8]);
    }
    assert!(!svg.contains(|c: char| c.is_control() && c != '\n'));
    picture
}
