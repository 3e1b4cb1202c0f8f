//! The prompts of an audit, and a small set for whoever brings none.

use crate::request::Prompt;
use crate::text::Message;

/// A prompt of an audit.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditPrompt {
    /// What messages and the report call it.
    pub name: String,
    /// Prompts of one category are also looked at together.
    pub category: String,
    /// The prompt.
    pub prompt: Prompt,
}

/// Category and text: short, and of different kinds, as acceptance and the shape of laws differ by kind.
const BUILT_IN: [(&str, &str); 12] = [
    ("code", "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n"),
    ("code", "fn is_prime(n: u32) -> bool {\n"),
    ("code", "# Read a CSV file and print the sum of its second column.\nimport csv\n"),
    ("story", "Write the beginning of a story about a lighthouse keeper who hears music at night."),
    ("story", "Describe a market in the early morning, in four sentences."),
    ("story", "Write a short poem about rain on a tin roof."),
    ("facts", "Explain in simple words why the sky is blue."),
    ("facts", "What are the main differences between a frog and a toad?"),
    ("facts", "How does a bicycle stay upright while it moves?"),
    ("repeat", "List the days of the week three times, each on a line of its own."),
    ("repeat", "Repeat this sentence five times: The quick brown fox jumps over the lazy dog."),
    ("repeat", "Count from 1 to 40, with a comma after every number."),
];

/// The built-in prompts: code as bare text, the rest as a user's message if the model has a chat template (`chat`).
pub fn built_in(chat: bool) -> Vec<AuditPrompt> {
    let prompt = |(index, (category, text)): (usize, (&str, &str))| AuditPrompt {
        name: format!("{category}-{}", index % 3 + 1),
        category: category.to_owned(),
        prompt: match chat && category != "code" {
            true => Prompt::Messages(vec![Message::user(text)]),
            false => Prompt::Text(text.to_owned()),
        },
    };
    BUILT_IN.into_iter().enumerate().map(prompt).collect()
}
