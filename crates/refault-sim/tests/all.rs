//! Integration tests, linked once: a module per file.

mod balance;
mod bounds;
mod cached_pages;
mod carries_over;
mod input_bounds;
mod kernel_oracle;
mod kernel_steps;
mod machine;
mod machine_background;
mod machine_frames;
mod machine_groups;
mod machine_locks;
mod machine_monitoring;
mod machine_oracle;
mod machine_recency;
mod machine_scenarios;
mod machine_switching;
mod miniature;
mod node_oracle;
mod objects;
mod read_ahead;
mod recorded;
mod shadow_nodes;
mod textbook_conformance;
mod textbook_golden;
