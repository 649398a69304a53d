// SPDX-License-Identifier: MIT
/*
 * chat_family.c - the table of known chat template families. See chat_family.h; chat.c reads it.
 *
 * Order matters where one family's markers include another's: the special one comes first. A family's
 * `not` list keeps out templates that share its markers and write something else. docs/model-formats.md
 * lists where each form was taken from; tests/vectors/chat.py renders each with Jinja itself.
 */
#include "daemon/model/chat_family.h"

#define CHATML_TURN(role)	{ T("<|im_start|>") role "\n", T("<|im_end|>") "\n", 0 }
#define CHATML_FORM		{ CHATML_TURN("system"), CHATML_TURN("user"), CHATML_TURN("assistant") }
#define CHATML_OPEN		T("<|im_start|>") "assistant\n"
#define CHATML_MUST		"<|im_start|>", "<|im_end|>", "add_generation_prompt"
#define CHATML_NOT		"<|im_sep|>", "<end_of_utterance>", "<|im_middle|>", "trim", "strip(", "think>", \
				"## Metadata", "default_system"
#define CHATML_DEF		.def_mark = "<|im_start|>system", .def_end = "<|im_end|>"

#define LLAMA3_TURN(role)	{ T("<|start_header_id|>") role T("<|end_header_id|>") "\n\n", T("<|eot_id|>"), 1 }
#define LLAMA3_OPEN		T("<|start_header_id|>") "assistant" T("<|end_header_id|>") "\n\n"
#define LLAMA3_MUST		"<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", "trim"
#define LLAMA3_DATES		"Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"

#define INST			T("[INST]")
#define INST_END		T("[/INST]")
#define EOS_S			T("</s>")

#define GEMMA_TURN(role)	{ T("<start_of_turn>") role "\n", T("<end_of_turn>") "\n", 1 }

#define PHI3_TURN(role)		{ T("<|" role "|>") "\n", T("<|end|>") "\n", 0 }
#define PHI3_FORM		{ PHI3_TURN("system"), PHI3_TURN("user"), PHI3_TURN("assistant") }
#define PHI3_OPEN		T("<|assistant|>") "\n"

#define ZEPHYR_TURN(role)	{ "<|" role "|>\n", EOS_S "\n", 0 }

#define DS_BOS			"<｜begin▁of▁sentence｜>"
#define DS_EOS			"<｜end▁of▁sentence｜>"
#define DS_USER			T("<｜User｜>")
#define DS_ASSISTANT		T("<｜Assistant｜>")

const struct sits_chat_family sits_chat_families[] = {
	{
		.name = "qwen3",
		.must = { "<|im_start|>", "<|im_end|>", "enable_thinking", "reasoning_content", "last_query_index",
			  "split('</think>')[-1].lstrip('\n')" },
		.not = { "<|im_start|>assistant\n<think>", "## Metadata", "default_system" },
		CHATML_DEF,
		.form = CHATML_FORM,
		.open = CHATML_OPEN,
		.flags = CHAT_CUT_THINK_LAST | CHAT_QWEN3,
	}, {
		.name = "smollm2",
		.must = { CHATML_MUST }, .not = { CHATML_NOT }, CHATML_DEF,
		.def = "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
		.form = CHATML_FORM,
		.open = CHATML_OPEN,
	}, {
		.name = "qwen2.5",
		.must = { CHATML_MUST }, .not = { CHATML_NOT }, CHATML_DEF,
		.def = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
		.form = CHATML_FORM,
		.open = CHATML_OPEN,
	}, {
		.name = "qwen2",
		.must = { CHATML_MUST }, .not = { CHATML_NOT }, CHATML_DEF,
		.def = "You are a helpful assistant.",
		.form = CHATML_FORM,
		.open = CHATML_OPEN,
	}, {
		.name = "qwen1.5",
		.must = { CHATML_MUST }, .not = { CHATML_NOT }, CHATML_DEF,
		.def = "You are a helpful assistant",
		.form = CHATML_FORM,
		.open = CHATML_OPEN,
	}, {
		.name = "chatml",
		.must = { CHATML_MUST }, .not = { CHATML_NOT, "You are " }, CHATML_DEF,
		.form = CHATML_FORM,
		.open = CHATML_OPEN,
	}, {
		.name = "chatml-own-system",	/* has a default system text of its own, or may have */
		.must = { CHATML_MUST }, .not = { CHATML_NOT },
		.form = CHATML_FORM,
		.open = CHATML_OPEN,
		.flags = CHAT_NEED_SYSTEM,
	}, {
		.name = "phi4",
		.must = { "<|im_start|>", "<|im_end|>", "<|im_sep|>" },
		.not = { "think>", "trim", "strip(", "default_system" },
		.def_mark = "<|im_start|>system<|im_sep|>", .def_end = "<|im_end|>",
		.form = {
			{ T("<|im_start|>") "system" T("<|im_sep|>"), T("<|im_end|>"), 0 },
			{ T("<|im_start|>") "user" T("<|im_sep|>"), T("<|im_end|>"), 0 },
			{ T("<|im_start|>") "assistant" T("<|im_sep|>"), T("<|im_end|>"), 0 },
		},
		.open = T("<|im_start|>") "assistant" T("<|im_sep|>"),
		.flags = CHAT_ALTERNATE,
	}, {
		/* The template's own date where its caller gives none and it has no clock. */
		.name = "llama3.1",
		.must = { LLAMA3_MUST, "Cutting Knowledge Date: December 2023\n", "Today Date: ", "26 Jul 2024" },
		.not = { "think", "default_system" },
		.def = "",
		.bos = "<|begin_of_text|>",
		.form = {
			{ T("<|start_header_id|>") "system" T("<|end_header_id|>") "\n\n" LLAMA3_DATES, T("<|eot_id|>"), 1 },
			LLAMA3_TURN("user"), LLAMA3_TURN("assistant"),
		},
		.open = LLAMA3_OPEN,
		.flags = CHAT_SYSTEM_FIRST,
	}, {
		.name = "llama3",
		.must = { LLAMA3_MUST },
		.not = { "Knowledge Date", "Today Date", "date_string", "strftime_now", "think", "default_system",
			 "You are " },
		.def_mark = "system<|end_header_id|>", .def_end = "<|eot_id|>",
		.bos = "<|begin_of_text|>",
		.form = { LLAMA3_TURN("system"), LLAMA3_TURN("user"), LLAMA3_TURN("assistant") },
		.open = LLAMA3_OPEN,
	}, {
		.name = "mistral-v7-tekken",
		.must = { "'[SYSTEM_PROMPT]' + system_message", "'[INST]' +", "default_system_message" },
		.not = { "[THINK]", "[MODEL_SETTINGS]", "trim" },
		.bos = "<s>", .eos = "</s>",
		.form = {
			{ T("[SYSTEM_PROMPT]"), T("[/SYSTEM_PROMPT]"), 0 }, { INST, INST_END, 0 }, { "", EOS_S, 0 },
		},
		.open = "",
		.flags = CHAT_ALTERNATE | CHAT_NEED_SYSTEM,
	}, {
		.name = "mistral-v7",
		.must = { "'[SYSTEM_PROMPT] ' + message['content'] + '[/SYSTEM_PROMPT]'",
			  "'[INST] ' + message['content'] + '[/INST]'", "' ' + message['content'] + eos_token" },
		.not = { "[THINK]", "[MODEL_SETTINGS]", "trim", "default_system" },
		.bos = "<s>", .eos = "</s>",
		.form = {
			{ T("[SYSTEM_PROMPT]") " ", T("[/SYSTEM_PROMPT]"), 0 }, { INST " ", INST_END, 0 }, { " ", EOS_S, 0 },
		},
		.open = "",
	}, {
		.name = "mistral-v3",
		.must = { "[AVAILABLE_TOOLS]", "'[INST] ' + message['content'] + '[/INST]'",
			  "' ' + message['content']|trim + eos_token", "loop.last and system_message is defined" },
		.not = { "[SYSTEM_PROMPT]", "default_system" },
		.bos = "<s>", .eos = "</s>",
		.form = { { "", "\n\n", 0 }, { INST " ", INST_END, 0 }, { " ", EOS_S, 1 } },
		.open = "",
		.flags = CHAT_ALTERNATE | CHAT_SYSTEM_IN_LAST,
	}, {
		.name = "mistral-v3-first",	/* the same, changed to put the system text first */
		.must = { "[AVAILABLE_TOOLS]", "'[INST] ' + message['content'] + '[/INST]'",
			  "' ' + message['content']|trim + eos_token", "loop.first and system_message is defined" },
		.not = { "[SYSTEM_PROMPT]", "default_system" },
		.bos = "<s>", .eos = "</s>",
		.form = { { "", "\n\n", 0 }, { INST " ", INST_END, 0 }, { " ", EOS_S, 1 } },
		.open = "",
		.flags = CHAT_ALTERNATE | CHAT_SYSTEM_IN_FIRST,
	}, {
		.name = "mistral-v3-tekken",
		.must = { "[AVAILABLE_TOOLS]", "'[INST]' + message['content'] + '[/INST]'",
			  "message['content'] + eos_token", "loop.last and system_message is defined" },
		.not = { "[SYSTEM_PROMPT]", "trim", "default_system", "' ' + message['content'] + eos_token" },
		.bos = "<s>", .eos = "</s>",
		.form = { { "", "\n\n", 0 }, { INST, INST_END, 0 }, { "", EOS_S, 0 } },
		.open = "",
		.flags = CHAT_ALTERNATE | CHAT_SYSTEM_IN_LAST,
	}, {
		.name = "mistral-v1",
		.must = { "' [INST] ' + system_message + '\n\n' + message['content'] + ' [/INST]'",
			  "' [INST] ' + message['content'] + ' [/INST]'", "' ' + message['content'] + eos_token",
			  "loop.first and system_message is defined" },
		.not = { "[AVAILABLE_TOOLS]", "trim", "default_system" },
		.bos = "<s>", .eos = "</s>",
		.plain = { "[INST]", "[/INST]" },
		.form = { { "", "\n\n", 0 }, { " [INST] ", " [/INST]", 0 }, { " ", EOS_S, 0 } },
		.open = "",
		.flags = CHAT_ALTERNATE | CHAT_SYSTEM_IN_FIRST,
	}, {
		.name = "llama2",
		.must = { "'<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content']",
			  "bos_token + '[INST] ' + content.strip() + ' [/INST]'", "+ content.strip() + ' ' + eos_token" },
		.not = { "true == true", "trim", "default_system" },
		.bos = "<s>", .eos = "</s>",
		.plain = { "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>" },
		.form = {
			{ "<<SYS>>\n", "\n<</SYS>>\n\n", 0 }, { T("<s>") "[INST] ", " [/INST]", 1 }, { " ", " " EOS_S, 1 },
		},
		.first_pre = "[INST] ",
		.open = "",
		.flags = CHAT_ALTERNATE | CHAT_SYSTEM_IN_FIRST,
	}, {
		.name = "mistral",	/* before the versions were numbered */
		.must = { "{{ bos_token }}", "'[INST] ' + message['content'] + ' [/INST]'",
			  "{{ message['content'] + eos_token", "raise_exception" },
		.not = { "<<SYS>>", "eos_token + ' '", "eos_token+ ' '", "system_message", "bos_token +", "trim",
			 "strip(", "[AVAILABLE_TOOLS]", "[SYSTEM_PROMPT]" },
		.bos = "<s>", .eos = "</s>",
		.plain = { "[INST]", "[/INST]" },
		.form = { { "", "", 0 }, { "[INST] ", " [/INST]", 0 }, { "", EOS_S, 0 } },
		.open = "",
		.flags = CHAT_ALTERNATE | CHAT_NO_SYSTEM,
	}, {
		/* Blocks take the newline behind them along, outputs do not. */
		.name = "zephyr",
		.must = { "'<|user|>\n' + message['content'] + eos_token }}\n", "'<|system|>\n' + message['content'] + eos_token }}\n",
			  "'<|assistant|>\n'", "'<|assistant|>' }}\n" },
		.not = { "<|end|>", "trim", "strip(", "default_system", "bos_token" },
		.eos = "</s>",
		.plain = { "<|user|>", "<|system|>", "<|assistant|>" },
		.form = { ZEPHYR_TURN("system"), ZEPHYR_TURN("user"), ZEPHYR_TURN("assistant") },
		.open = "<|assistant|>\n",
	}, {
		.name = "tulu",		/* and OLMo, OLMoE */
		.must = { "'<|user|>\n' + message['content'] + '\n' }}{% elif",
			  "'<|system|>\n' + message['content'] + '\n' }}{% elif",
			  "+ message['content'] + eos_token + '\n' }}{% else %}", "'<|assistant|>\n' }}{% endif %}" },
		.not = { "<|end|>", "trim", "strip(", "default_system" },
		.bos = "<|endoftext|>", .eos = "<|endoftext|>",
		.plain = { "<|user|>", "<|system|>", "<|assistant|>" },
		.form = {
			{ "<|system|>\n", "\n", 0 }, { "<|user|>\n", "\n", 0 },
			{ "<|assistant|>\n", T("<|endoftext|>") "\n", 0 },
		},
		.open = "<|assistant|>\n",
	}, {
		.name = "gemma3",
		.must = { "<start_of_turn>", "<end_of_turn>\n", "'model'", "trim",
			  "first_user_prefix = messages[0]['content'] + '\n\n'" },
		.not = { "think", "default_system" },
		.bos = "<bos>",
		.form = { { "", "\n\n", 0 }, GEMMA_TURN("user"), GEMMA_TURN("model") },
		.open = T("<start_of_turn>") "model\n",
		.flags = CHAT_ALTERNATE | CHAT_SYSTEM_IN_FIRST,
	}, {
		.name = "gemma",
		.must = { "<start_of_turn>", "<end_of_turn>\n", "'model'", "trim", "System role not supported" },
		.not = { "first_user_prefix", "think", "default_system" },
		.bos = "<bos>",
		.form = { { "", "", 0 }, GEMMA_TURN("user"), GEMMA_TURN("model") },
		.open = T("<start_of_turn>") "model\n",
		.flags = CHAT_ALTERNATE | CHAT_NO_SYSTEM,
	}, {
		.name = "phi3-roles",	/* small, vision: one form for all roles */
		.must = { "'<|' + message['role'] + '|>' + '\n' + message['content'] + '<|end|>\n'", "'<|assistant|>\n'" },
		.not = { "trim", "strip(", "think>", "default_system" },
		.bos = "<s>",
		.form = PHI3_FORM,
		.open = PHI3_OPEN,
	}, {
		.name = "phi3.5",	/* and later phi3-mini */
		.must = { "'<|system|>\n' + message['content'] + '<|end|>\n'", "'<|user|>\n' + message['content'] + '<|end|>\n'",
			  "'<|assistant|>\n' + message['content'] + '<|end|>\n'", "add_generation_prompt" },
		.not = { "trim", "strip(", "think>", "default_system" },
		.bos = "<s>",
		.form = PHI3_FORM,
		.open = PHI3_OPEN,
	}, {
		/* Drops a system message without a word, which is refused here. */
		.name = "phi3",
		.must = { "'<|user|>' + '\n' + message['content'] + '<|end|>' + '\n' + '<|assistant|>' + '\n'",
			  "message['content'] + '<|end|>' + '\n'" },
		.not = { "<|system|>", "trim", "strip(", "think>", "default_system" },
		.bos = "<s>",
		.form = PHI3_FORM,
		.open = PHI3_OPEN,
		.flags = CHAT_ALTERNATE | CHAT_NO_SYSTEM,
	}, {
		.name = "deepseek-v3.1",
		.must = { "<｜User｜>", "<｜Assistant｜>", DS_EOS, "not thinking is defined",
			  "content.split('</think>', 1)[1]", "is_last_user" },
		.not = { "DSML", "trim", "default_system" },
		.bos = DS_BOS, .eos = DS_EOS,
		.form = { { "", "", 0 }, { DS_USER, "", 0 }, { DS_ASSISTANT T("</think>"), T(DS_EOS), 0 } },
		.open = DS_ASSISTANT T("</think>"),
		.flags = CHAT_ALTERNATE | CHAT_CUT_THINK_FIRST,
	}, {
		.name = "deepseek-r1",
		.must = { "<｜User｜>", "<｜Assistant｜>", DS_EOS, "content.split('</think>')[-1]",
			  "'<｜Assistant｜><think>\n'" },
		.not = { "DSML", "trim", "default_system", "thinking" },
		.bos = DS_BOS, .eos = DS_EOS,
		.form = { { "", "", 0 }, { DS_USER, "", 0 }, { DS_ASSISTANT, T(DS_EOS), 0 } },
		.open = DS_ASSISTANT T("<think>") "\n",
		.flags = CHAT_SYSTEM_FIRST | CHAT_CUT_THINK_LAST,
	}, {
		.name = "deepseek-r1-open",	/* the first release: the model itself writes <think> */
		.must = { "<｜User｜>", "'<｜Assistant｜>'", DS_EOS, "content.split('</think>')[-1]" },
		.not = { "<｜Assistant｜><think>", "DSML", "trim", "default_system", "thinking" },
		.bos = DS_BOS, .eos = DS_EOS,
		.form = { { "", "", 0 }, { DS_USER, "", 0 }, { DS_ASSISTANT, T(DS_EOS), 0 } },
		.open = DS_ASSISTANT,
		.flags = CHAT_SYSTEM_FIRST | CHAT_CUT_THINK_LAST,
	}, {
		.name = "deepseek-v3",
		.must = { "<｜User｜>", "'<｜Assistant｜>'", DS_EOS, "system_prompt" },
		.not = { "think", "DSML", "trim", "default_system", "strip(" },
		.bos = DS_BOS, .eos = DS_EOS,
		.form = { { "", "", 0 }, { DS_USER, "", 0 }, { DS_ASSISTANT, T(DS_EOS), 0 } },
		.open = DS_ASSISTANT,
		.flags = CHAT_SYSTEM_FIRST,
	}, {
		.name = "deepseek-v2",
		.must = { "'User: ' + message['content'] + '\n\n'", "'Assistant: ' + message['content'] + eos_token",
			  "message['content'] + '\n\n'", "'Assistant:'" },
		.not = { "trim", "strip(", "default_system" },
		.bos = DS_BOS, .eos = DS_EOS,
		.form = { { "", "\n\n", 0 }, { "User: ", "\n\n", 0 }, { "Assistant: ", T(DS_EOS), 0 } },
		.open = "Assistant:",
	},
};

_Static_assert(sizeof(sits_chat_families) / sizeof(sits_chat_families[0]) <= SITS_CHAT_FAMILIES_MAX, "raise it");
const size_t sits_chat_nr_families = sizeof(sits_chat_families) / sizeof(sits_chat_families[0]);
