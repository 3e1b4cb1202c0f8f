//! The prompts of a file, as tokens, by category; and long ones made of them.

use std::path::Path;

use anyhow::{Context, ensure};
use redline::cli::{PromptLine, parse_prompts};
use redline::gguf::Header;
use redline::hub::{TerminalProgress, resolve};
use redline::text::{ChatOptions, ChatTemplate, Encode, Tokenizer};
use redline::{Prompt, TokenId};

/// The category of texts that are continued as they stand.
const CODE: &str = "code";

/// Prompts of one kind.
pub(crate) struct Category {
    pub(crate) name: String,
    pub(crate) prompts: Vec<Vec<TokenId>>,
}

/// The first `limit` prompts of every category, in the order of the file; 0 takes all.
pub(crate) fn by_category(model: &str, file: &Path, limit: usize) -> anyhow::Result<Vec<Category>> {
    let path = resolve(model, &mut TerminalProgress::new())?;
    let (header, _) = Header::open(&path).with_context(|| path.display().to_string())?;
    let tokenizer = Tokenizer::from_gguf(&header)?;
    let template = ChatTemplate::from_gguf(&header, &tokenizer)?;
    let shown = file.display().to_string();
    let bytes = std::fs::read(file).with_context(|| format!("can't read {shown}"))?;
    // Code has no messages, and what has messages is no code: each line is good in one of the two readings.
    let chats = parse_prompts(&shown, &bytes, template.is_none())?;
    let texts = parse_prompts(&shown, &bytes, true).unwrap_or_default();
    let mut categories: Vec<Category> = Vec::new();
    for (index, line) in chats.into_iter().enumerate() {
        let name = line.category.clone().unwrap_or_else(|| "all".to_owned());
        let line = match texts.get(index) {
            Some(text) if name == CODE => text.clone(),
            _ => line,
        };
        let at = categories.iter().position(|category| category.name == name);
        let at = at.unwrap_or_else(|| {
            categories.push(Category { name, prompts: Vec::new() });
            categories.len() - 1
        });
        if limit == 0 || categories[at].prompts.len() < limit {
            categories[at].prompts.push(tokens(&line, &tokenizer, template.as_ref())?);
        }
    }
    Ok(categories)
}

fn tokens(
    line: &PromptLine,
    tokenizer: &Tokenizer,
    template: Option<&ChatTemplate>,
) -> anyhow::Result<Vec<TokenId>> {
    let text = match (&line.prompt, template) {
        (Prompt::Tokens(tokens), _) => return Ok(tokens.clone()),
        (Prompt::Text(text), _) => text.clone(),
        (Prompt::Messages(messages), Some(template)) => {
            template.render(messages, &ChatOptions::generation())?
        }
        (Prompt::Messages(_), None) => anyhow::bail!("the model has no chat template"),
    };
    Ok(tokenizer.encode(&text, Encode::default())?)
}

/// `count` different prompts of exactly `length` tokens: each ends in a prompt of the file, going round the categories,
/// behind as much of others as it takes.
pub(crate) fn of_length(
    categories: &[Category],
    count: usize,
    length: usize,
) -> anyhow::Result<Vec<Vec<TokenId>>> {
    let deepest = categories.iter().map(|category| category.prompts.len()).max().unwrap_or(0);
    let rounds = (0..deepest).flat_map(|depth| {
        categories.iter().filter_map(move |category| category.prompts.get(depth))
    });
    let ends: Vec<_> = rounds.filter(|prompt| prompt.len() <= length).collect();
    let all: Vec<_> = categories.iter().flat_map(|category| &category.prompts).collect();
    ensure!(ends.len() >= count, "only {} prompts have at most {length} tokens", ends.len());
    let made = ends.into_iter().take(count).enumerate().map(|(index, end)| {
        // Another start for each, so that no two have a prefix in common.
        let before = all.iter().cycle().skip(index * 7 % all.len()).copied().flatten();
        let mut prompt: Vec<_> = before.take(length - end.len()).copied().collect();
        prompt.extend(end);
        prompt
    });
    Ok(made.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_prompts_have_their_length_their_end_and_a_start_of_their_own() {
        let category = |name: &str, prompts: &[&[TokenId]]| Category {
            name: name.to_owned(),
            prompts: prompts.iter().map(|prompt| prompt.to_vec()).collect(),
        };
        let categories =
            [category("a", &[&[1, 2], &[3, 4, 5]]), category("b", &[&[6], &[7; 20], &[8, 9]])];
        let made = of_length(&categories, 3, 10).unwrap();
        assert!(made.iter().all(|prompt| prompt.len() == 10));
        let ends: [&[TokenId]; 3] = [&[1, 2], &[6], &[3, 4, 5]];
        for (prompt, end) in made.iter().zip(ends) {
            assert!(prompt.ends_with(end), "{prompt:?}");
        }
        assert_ne!(made[0][..3], made[1][..3]);
        assert!(of_length(&categories, 5, 10).is_err(), "one of five is longer");
    }
}
