#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Golden renderings of chat templates by Jinja itself: writes chat.json beside this file.

The templates are our own, short ones: each has the markers of a family's published template, writes what that
writes for plain conversations, and raises where sits_chat_render() refuses an order of roles by design. The
environment is the one that Hugging Face's apply_chat_template() sets up (trim_blocks, lstrip_blocks,
raise_exception), with no clock (strftime_now) and no tools. An "expect" of null: the order is refused.

usage: chat.py [MODEL.gguf]   with a model: check that its own template renders as the family's
"""
import json
import pathlib
import sys

from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

CHATML = ("{% for message in messages %}%DEFAULT%{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>'"
          " + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
CHATML_TOKENS = ["<|im_start|>", "<|im_end|>"]


def chatml(default=None):
    text = ("{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n" + default +
            "<|im_end|>\n' }}{% endif %}") if default is not None else ""
    return CHATML.replace("%DEFAULT%", text)


# The same through a block for each case, as Qwen2.5 has it, with "\n" as an escape.
QWEN25 = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}{{- messages[0]['content'] }}{%- else %}{{- 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' }}{%- endif %}
    {{- "(tools)<|im_end|>\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if message.role != "system" or not loop.first %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""

QWEN3 = r"""{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(last_query_index=-1) %}
{%- for message in messages %}
    {%- if message.role == "user" and not (message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.last_query_index = loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- if loop.index0 > ns.last_query_index %}{{ raise_exception('refused here') }}{%- endif %}
        {%- set content = message.content %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in content %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
"""

TURNS = ("{% set at = namespace(n=0) %}{% for message in messages %}{% if not (message['role'] == 'system' and loop.first) %}"
         "{% if (message['role'] == 'user') != (at.n % 2 == 0) or message['role'] == 'system' %}{{ raise_exception('refused here') }}"
         "{% endif %}{% set at.n = at.n + 1 %}{% endif %}{% endfor %}")
PHI4 = (TURNS + "{% for message in messages %}{% if (message['role'] == 'system') %}{{'<|im_start|>system<|im_sep|>' + message['content']"
        " + '<|im_end|>'}}{% elif (message['role'] == 'user') %}{{'<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>"
        "<|im_start|>assistant<|im_sep|>'}}{% else %}{{message['content'] + '<|im_end|>'}}{% endif %}{% endfor %}")

LLAMA3 = ("{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
          " + message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}"
          "{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n'"
          " }}{% endif %}")
LLAMA3_TOKENS = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
LLAMA31 = r"""{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{{- "Cutting Knowledge Date: December 2023\n" }}
{{- "Today Date: " + date_string + "\n\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if message['role'] == 'system' %}{{ raise_exception('refused here') }}{%- endif %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""

ALTERNATE = "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) or message['role'] == 'system' %}{{ raise_exception('roles must alternate') }}{% endif %}"
SPLIT_SYSTEM = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
"""

MISTRAL = ("{{ bos_token }}{% for message in messages %}" + ALTERNATE + "{% if message['role'] == 'user' %}{{ '[INST] ' + "
           "message['content'] + ' [/INST]' }}{% else %}{{ message['content'] + eos_token}}{% endif %}{% endfor %}")
MISTRAL_V1 = SPLIT_SYSTEM + r"""
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) or message.role == 'system' %}{{- raise_exception('roles must alternate') }}{%- endif %}
    {%- if message['role'] == 'user' %}
        {%- if loop.first and system_message is defined %}
            {{- ' [INST] ' + system_message + '\n\n' + message['content'] + ' [/INST]' }}
        {%- else %}
            {{- ' [INST] ' + message['content'] + ' [/INST]' }}
        {%- endif %}
    {%- else %}
        {{- ' ' + message['content'] + eos_token}}
    {%- endif %}
{%- endfor %}
"""


def mistral_v3(inst, answer, place):
    return SPLIT_SYSTEM + r"""
{%- if tools is defined %}{{- "[AVAILABLE_TOOLS]" }}{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if (message["role"] == "user") != (loop.index0 % 2 == 0) or message.role == "system" %}{{- raise_exception("roles must alternate") }}{%- endif %}
    {%- if message["role"] == "user" %}
        {%- if %PLACE% and system_message is defined %}
            {{- "%INST%" + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "%INST%" + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- else %}
        {{- %ANSWER% + eos_token}}
    {%- endif %}
{%- endfor %}
""".replace("%INST%", inst).replace("%ANSWER%", answer).replace("%PLACE%", place)


MISTRAL_V7 = ("{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + "
              "'[/INST]' }}{% elif message['role'] == 'system' %}{{ '[SYSTEM_PROMPT] ' + message['content'] + "
              "'[/SYSTEM_PROMPT]' }}{% else %}{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}")
MISTRAL_V7_TEKKEN = r"""{%- set default_system_message = "(a default with a date)" %}
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {{- raise_exception('the default is not known here') }}
{%- endif %}
{{- '[SYSTEM_PROMPT]' + system_message + '[/SYSTEM_PROMPT]' }}
{%- for message in loop_messages %}
    {%- if (message["role"] == "user") != (loop.index0 % 2 == 0) or message.role == "system" %}{{- raise_exception("roles must alternate") }}{%- endif %}
    {%- if message["role"] == "user" %}{{- '[INST]' + message['content'] + '[/INST]' }}
    {%- else %}{{- message['content'] + eos_token }}
    {%- endif %}
{%- endfor %}
"""
INST_TOKENS = ["<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"]

LLAMA2 = ("{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}"
          "{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
          "{% for message in loop_messages %}" + ALTERNATE +
          r"{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}"
          "{% else %}{% set content = message['content'] %}{% endif %}"
          "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
          "{% else %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}")

ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>
' + message['content'] + eos_token }}
{% else %}
{{ '<|assistant|>
'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""
TULU = ("{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}{{ '<|system|>\n' + message['content'] + '\n' }}"
        "{% elif message['role'] == 'user' %}{{ '<|user|>\n' + message['content'] + '\n' }}{% elif message['role'] == 'assistant' %}"
        "{% if not loop.last %}{{ '<|assistant|>\n'  + message['content'] + eos_token + '\n' }}{% else %}{{ '<|assistant|>\n'  + "
        "message['content'] + eos_token }}{% endif %}{% endif %}{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}"
        "{% endif %}{% endfor %}")

GEMMA = ("{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
         "{% for message in messages %}" + ALTERNATE + "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}"
         "{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}"
         "{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}")
GEMMA3 = r"""{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) or message.role == 'system' -%}{{ raise_exception("roles must alternate") }}{%- endif -%}
    {%- if (message['role'] == 'assistant') -%}{%- set role = "model" -%}{%- else -%}{%- set role = message['role'] -%}{%- endif -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {{- message['content'] | trim }}
    {{- '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
"""

PHI3 = ("{{ bos_token }}{% for message in messages %}" + ALTERNATE + "{% if (message['role'] == 'user') %}{{'<|user|>' + '\n' + "
        "message['content'] + '<|end|>' + '\n' + '<|assistant|>' + '\n'}}{% else %}{{message['content'] + '<|end|>' + '\n'}}"
        "{% endif %}{% endfor %}")
PHI35 = ("{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\n' + message['content'] + '<|end|>\n'}}"
         "{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{% else %}{{'<|assistant|>\n' + "
         "message['content'] + '<|end|>\n'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}"
         "{{ eos_token }}{% endif %}")
PHI3_ROLES = ("{{ bos_token }}{% for message in messages %}{{'<|' + message['role'] + '|>' + '\n' + message['content'] + '<|end|>\n' }}"
              "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}")
PHI3_TOKENS = ["<s>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"]

DS_BOS, DS_EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
DS_TOKENS = [DS_BOS, DS_EOS, "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>"]
DS_HEAD = """{%- set ns = namespace(system_prompt='', is_last_user=false) -%}
{%- for message in messages -%}
  {%- if message['role'] == 'system' -%}
    {%- if not loop.first -%}{{ raise_exception('refused here') }}{%- endif -%}
    {%- set ns.system_prompt = message['content'] -%}
  {%- endif -%}
{%- endfor -%}{{bos_token}}{{ns.system_prompt}}
"""


def deepseek(cut, opening):
    return DS_HEAD + """{%- for message in messages -%}
  {%- if message['role'] == 'user' -%}{{'<｜User｜>' + message['content']}}{%- endif -%}
  {%- if message['role'] == 'assistant' -%}
    {%- set content = message['content'] -%}
    """ + cut + """{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{'""" + opening + """'}}{%- endif %}"""


DS_CUT = "{%- if '</think>' in content -%}{%- set content = content.split('</think>')[-1] -%}{%- endif -%}"
DS_V31 = TURNS + "{%- if not thinking is defined -%}{%- set thinking = false -%}{%- endif -%}\n" + DS_HEAD + """{%- for message in messages -%}
  {%- if message['role'] == 'user' -%}
    {%- set ns.is_last_user = true -%}{{'<｜User｜>' + message['content']}}
  {%- endif -%}
  {%- if message['role'] == 'assistant' -%}
    {%- if ns.is_last_user -%}{{'<｜Assistant｜></think>'}}{%- endif -%}
    {%- set ns.is_last_user = false -%}
    {%- set content = message['content'] -%}
    {%- if '</think>' in content -%}{%- set content = content.split('</think>', 1)[1] -%}{%- endif -%}
    {{content + '<｜end▁of▁sentence｜>'}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt and ns.is_last_user -%}{{'<｜Assistant｜></think>'}}{%- endif %}"""
DS_V2 = ("{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ 'User: ' + message['content'] + '\n\n' }}"
         "{% elif message['role'] == 'assistant' %}{{ 'Assistant: ' + message['content'] + eos_token }}{% else %}"
         "{{ message['content'] + '\n\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}")

# family, template, control tokens, bos, eos
FAMILIES = [
    ("chatml", chatml(), CHATML_TOKENS, None, "<|im_end|>"),
    ("smollm2", chatml("You are a helpful AI assistant named SmolLM, trained by Hugging Face"), CHATML_TOKENS, None, "<|im_end|>"),
    ("qwen1.5", chatml("You are a helpful assistant"), CHATML_TOKENS, None, "<|im_end|>"),
    ("qwen2", chatml("You are a helpful assistant."), CHATML_TOKENS, None, "<|im_end|>"),
    ("qwen2.5", QWEN25, CHATML_TOKENS, None, "<|im_end|>"),
    ("qwen3", QWEN3, CHATML_TOKENS, None, "<|im_end|>"),
    ("phi4", PHI4, CHATML_TOKENS + ["<|im_sep|>"], None, "<|im_end|>"),
    ("llama3", LLAMA3, LLAMA3_TOKENS, "<|begin_of_text|>", "<|eot_id|>"),
    ("llama3.1", LLAMA31, LLAMA3_TOKENS, "<|begin_of_text|>", "<|eot_id|>"),
    ("mistral", MISTRAL, INST_TOKENS[:2], "<s>", "</s>"),
    ("mistral-v1", MISTRAL_V1, INST_TOKENS[:2], "<s>", "</s>"),
    ("mistral-v3", mistral_v3("[INST] ", '" " + message["content"]|trim', "loop.last"), INST_TOKENS, "<s>", "</s>"),
    ("mistral-v3-first", mistral_v3("[INST] ", '" " + message["content"]|trim', "loop.first"), INST_TOKENS, "<s>", "</s>"),
    ("mistral-v3-tekken", mistral_v3("[INST]", 'message["content"]', "loop.last"), INST_TOKENS, "<s>", "</s>"),
    ("mistral-v7", MISTRAL_V7, INST_TOKENS, "<s>", "</s>"),
    ("mistral-v7-tekken", MISTRAL_V7_TEKKEN, INST_TOKENS, "<s>", "</s>"),
    ("llama2", LLAMA2, INST_TOKENS[:2], "<s>", "</s>"),
    ("zephyr", ZEPHYR, INST_TOKENS[:2], "<s>", "</s>"),
    ("tulu", TULU, ["<|endoftext|>"], "<|endoftext|>", "<|endoftext|>"),
    ("gemma", GEMMA, ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"], "<bos>", "<eos>"),
    ("gemma3", GEMMA3, ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"], "<bos>", "<eos>"),
    ("phi3", PHI3, PHI3_TOKENS, "<s>", "<|endoftext|>"),
    ("phi3.5", PHI35, PHI3_TOKENS, "<s>", "<|endoftext|>"),
    ("phi3-roles", PHI3_ROLES, PHI3_TOKENS, "<s>", "<|endoftext|>"),
    ("deepseek-v2", DS_V2, DS_TOKENS[:2], DS_BOS, DS_EOS),
    ("deepseek-v3", deepseek("", "<｜Assistant｜>"), DS_TOKENS, DS_BOS, DS_EOS),
    ("deepseek-r1", deepseek(DS_CUT, r"<｜Assistant｜><think>\n"), DS_TOKENS, DS_BOS, DS_EOS),
    ("deepseek-r1-open", deepseek(DS_CUT, "<｜Assistant｜>"), DS_TOKENS, DS_BOS, DS_EOS),
    ("deepseek-v3.1", DS_V31, DS_TOKENS, DS_BOS, DS_EOS),
]

S, U, A = "system", "user", "assistant"
CONVERSATIONS = [
    [(U, "Hello")],
    [(S, "Be brief."), (U, "Hello")],
    [(U, "1+1?"), (A, "2"), (U, "And 2+2?")],
    [(S, "Be brief."), (U, "1+1?"), (A, "2"), (U, "And 2+2?"), (A, "4"), (U, "Thanks!\nWhy?")],
    [(S, "  padded \n"), (U, "\n\t padded\u3000\u2003"), (A, "  \u00a0padded\x1f \n"), (U, "\u200b not space \u0085 ")],
    [(U, ""), (A, ""), (U, "")],
    [(U, "q"), (A, "<think>a</think>b</think>\n\nc</think\n"), (U, "\ttab"), (A, "\n\nno reasoning\n"), (U, "é 漢字 🙂 \\n {{ x }}")],
    # orders that some families have no form for
    [(U, "a"), (U, "b")],
    [(A, "a"), (U, "b")],
    [(S, "s"), (A, "a"), (U, "b")],
    [(U, "a"), (S, "s"), (U, "b")],
    [(S, "s"), (S, "t"), (U, "b")],
]


def environment():
    def raise_exception(message):
        raise TemplateError(message)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.globals["raise_exception"] = raise_exception
    return env


def render(template, bos, eos, conversation):
    try:
        return environment().from_string(template).render(
            messages=[{"role": r, "content": c} for r, c in conversation], bos_token=bos or "", eos_token=eos,
            add_generation_prompt=True)
    except TemplateError:
        return None


def cases(template, tokens, bos, eos):
    injected = "".join(tokens) + "[INST] <|user|> " + tokens[-1]
    smuggled = [[(U, injected), (A, injected), (U, "x" + injected + "y")], [(S, injected), (U, injected)]]
    writes_bos = "bos_token" in template
    for i, conversation in enumerate(CONVERSATIONS + smuggled):
        text = render(template, bos, eos, conversation)
        for add_bos in (True, False):
            expect = text
            if text is not None and writes_bos and add_bos:
                assert text.startswith(bos), text
                expect = text[len(bos):]  # the tokenizer's to add
            if add_bos or (writes_bos and i < 3):
                yield {"add_bos": add_bos, "messages": conversation, "expect": expect}


def check_model(path):
    from gguf import GGUFReader
    reader = GGUFReader(path)

    def text(key):
        field = reader.fields[key]
        return bytes(field.parts[field.data[0]]).decode()
    template = text("tokenizer.chat_template")
    for family, ours, _, bos, eos in FAMILIES:
        same = all(render(template, bos, eos, c) == render(ours, bos, eos, c) for c in CONVERSATIONS)
        if same:
            print(f"{path}: renders as {family}")
            return
    sys.exit(f"{path}: renders as no family here")


def main():
    if len(sys.argv) > 1:
        return check_model(sys.argv[1])
    out = [{"family": f, "template": t, "tokens": k, "bos": b, "eos": e, "cases": list(cases(t, k, b, e))}
           for f, t, k, b, e in FAMILIES]
    path = pathlib.Path(__file__).with_name("chat.json")
    path.write_text(json.dumps(out, ensure_ascii=False, indent=0) + "\n")
    print(f"{path.name}: {len(out)} families, {sum(len(o['cases']) for o in out)} cases")


main()
